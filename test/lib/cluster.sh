#!/bin/bash
# cluster.sh: a throw-away cluster on a Unix socket, as functions (source it) or as commands (run it).
#
#   cluster.sh init [NAME=VALUE]...   make $PGDATA with the given settings; its socket is in $PGHOST
#   cluster.sh start | stop | restart
#   cluster.sh crash                  stop as a power cut would: no checkpoint, recovery at the next start
#
# Needs PGDATA, PGHOST (a folder with a short path) and PGPORT in the environment, the server's programs on PATH, and an
# ordinary user. Nothing is flushed to disk unless asked for by fsync=on.

cluster_init()
{
	local setting

	initdb --no-sync --auth=trust --username=postgres --encoding=UTF8 --locale=C "$PGDATA" >"$PGDATA.log" 2>&1 ||
		{
			cat "$PGDATA.log" >&2
			return 1
		}
	{
		echo "listen_addresses = ''"
		echo "unix_socket_directories = '$PGHOST'"
		echo "port = $PGPORT"
		echo "fsync = off"
		for setting
		do
			echo "${setting%%=*} = '${setting#*=}'"
		done
	} >>"$PGDATA/postgresql.conf"
}

cluster_start()
{
	if ! pg_ctl -D "$PGDATA" -l "$PGDATA.log" -w -t 60 start >/dev/null
	then
		tail -n 40 "$PGDATA.log" >&2
		return 1
	fi
}

cluster_stop()
{
	pg_ctl -D "$PGDATA" -m fast -w -t 60 stop >/dev/null
}

cluster_crash()
{
	pg_ctl -D "$PGDATA" -m immediate -w -t 60 stop >/dev/null
}

cluster_restart()
{
	cluster_stop
	cluster_start
}

if [ "${BASH_SOURCE[0]}" = "$0" ]
then
	set -euo pipefail
	case ${1:-} in
		init | start | stop | crash | restart)
			command=$1
			shift
			"cluster_$command" "$@"
			;;
		*)
			sed -n '2,/^$/s/^# \{0,1\}//p' "$0" >&2
			exit 2
			;;
	esac
fi
