# shellcheck shell=bash
# common.sh: what the scripts in this folder share. Source it; it runs nothing.
#
# The steps that need root (Debian packages) run as whoever calls. Everything else, from the build to the last
# test, runs as an ordinary user in a work folder below /tmp, against a private copy of the server's
# installation: the source tree and the machine's PostgreSQL are only read, and runs cannot disturb each other.

export LC_ALL=C

LIB=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
TOP=$(cd "$LIB/../.." && pwd)
WORK='' # the work folder, once make_work has made it
ALSO_REMOVE='' # a folder elsewhere that goes away with it
GUARDED='' # the process group that guarded() waits for

# What the caller's make or shell hands down must not steer the makes and servers in here.
unset MAKEFLAGS MFLAGS MAKEOVERRIDES MAKELEVEL
for name in "${!PG@}"
do
	[ "$name" = PG_CONFIG ] || unset "$name"
done

say()
{
	echo "# $*"
}

die()
{
	echo "error: $*" >&2
	exit 1
}

# --- Debian packages ----------------------------------------------------------------------------------------

as_root()
{
	if [ "$(id -u)" = 0 ]
	then
		"$@"
	elif command -v sudo >/dev/null
	then
		sudo "$@"
	else
		die "packages are missing, and there is neither root nor sudo to install them: $*"
	fi
}

apt_get()
{
	as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 "$@" </dev/null
}

installed()
{
	[ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# Can apt install PACKAGE? The rest is a command to run apt in another place.
# Not grep -q: it would end the pipe early, and apt-cache would fail for it.
available()
{
	"${@:2}" apt-cache policy "$1" 2>/dev/null | grep 'Candidate: [^(]' >/dev/null
}

missing_of()
{
	local package

	for package
	do
		installed "$package" || echo "$package"
	done
}

# Install those of the named packages that are missing. Debian's server package starts a cluster of its own when it
# is new to the machine; a drop-in file keeps it from doing so while we install.
need_packages()
{
	local missing dropin=/etc/postgresql-common/createcluster.d/no_main_cluster.conf

	if ! command -v dpkg-query >/dev/null
	then
		say "not a Debian machine: taking the tools as they are"
		return
	fi
	mapfile -t missing < <(missing_of "$@")
	[ ${#missing[@]} -gt 0 ] || return 0

	say "installing ${missing[*]}"
	as_root mkdir -p "${dropin%/*}"
	as_root sh -c "echo 'create_main_cluster = false' >$dropin"
	if ! apt_get install --no-install-recommends "${missing[@]}" >"${APT_LOG:=$(mktemp)}" 2>&1
	then
		apt_get update >>"$APT_LOG" 2>&1 || true
		apt_get install --no-install-recommends "${missing[@]}" >>"$APT_LOG" 2>&1 ||
			{
				as_root rm -f "$dropin"
				tail -n 30 "$APT_LOG" >&2
				die "could not install ${missing[*]}"
			}
	fi
	as_root rm -f "$dropin"
	rm -f "$APT_LOG"
}

# The server to test: PG_CONFIG if set, else PG_MAJOR, else the newest installed, else the newest there is to install.
# Sets PG_CONFIG; installs the server and what the tests use.
need_server()
{
	local major=${PG_MAJOR:-} candidate

	if [ -n "${PG_CONFIG:-}" ]
	then
		return
	fi
	for candidate in 18 17 16 15
	do
		[ -z "$major" ] && [ -x "/usr/lib/postgresql/$candidate/bin/postgres" ] && major=$candidate
	done
	if [ -z "$major" ]
	then
		for candidate in 18 17 16 15
		do
			[ -z "$major" ] && available "postgresql-$candidate" && major=$candidate
		done
	fi
	if [ -z "$major" ] && command -v apt-get >/dev/null
	then
		apt_get update >/dev/null
		for candidate in 18 17 16 15
		do
			[ -z "$major" ] && available "postgresql-$candidate" && major=$candidate
		done
	fi
	[ -n "$major" ] || die "no PostgreSQL 15 to 18 installed or to be installed; set PG_CONFIG"

	need_packages gcc libc6-dev make "postgresql-$major" "postgresql-server-dev-$major" "postgresql-$major-cron" \
		libipc-run-perl python3 python3-psycopg python3-croniter pgbouncer
	PG_CONFIG=/usr/lib/postgresql/$major/bin/pg_config
}

# --- the work folder and the ordinary user -------------------------------------------------------------------

ordinary_user()
{
	if [ "$(id -u)" != 0 ]
	then
		id -un
	elif id postgres >/dev/null 2>&1
	then
		echo postgres
	else
		echo nobody
	fi
}

as_user()
{
	local user

	user=$(ordinary_user)
	if [ "$(id -u)" = 0 ]
	then
		setpriv --reuid "$user" --regid "$(id -g "$user")" --init-groups \
			env HOME="$WORK" USER="$user" LOGNAME="$user" "$@"
	else
		"$@"
	fi
}

# The cluster of a work folder, and the place for temporary files of what uses it.
use_cluster()
{
	export PGDATA=$1/data PGHOST=$1/tmp PGPORT=5432 PGUSER=postgres PGDATABASE=postgres TMPDIR=$1/tmp
}

# Make $WORK, which goes away when the script ends, however it ends.
make_work()
{
	trap clean_work EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM HUP
	WORK=$(mktemp -d "${JOB_IDEM_TMP:-/tmp}/ji.XXXXXX")
	chmod 755 "$WORK"
	mkdir "$WORK/tmp" "$WORK/src"
	copy_source "$WORK/src"
	own_work
}

own_work()
{
	if [ "$(id -u)" = 0 ]
	then
		chown -R "$(ordinary_user):" "$WORK"
	fi
}

clean_work()
{
	local status=$?

	trap '' INT TERM HUP
	set +e
	if [ -n "$GUARDED" ]
	then
		kill -TERM -- "-$GUARDED" 2>/dev/null
		wait_gone 20 kill -0 -- "-$GUARDED" || kill -KILL -- "-$GUARDED" 2>/dev/null
	fi
	if [ -n "$WORK" ]
	then
		end_below "$WORK"
		rm -rf "$WORK"
	fi
	[ -z "$ALSO_REMOVE" ] || rm -rf "$ALSO_REMOVE"
	exit "$status"
}

# Wait until the given command fails, for so many seconds at most.
wait_gone()
{
	local deadline=$((SECONDS + $1))

	shift
	while "$@" 2>/dev/null
	do
		[ "$SECONDS" -lt "$deadline" ] || return 1
		sleep 0.1
	done
}

# Process ids whose working directory lies below a folder. A server works in its data directory, a test in its copy
# of the source, so this finds what a run started and nothing else.
pids_below()
{
	local process cwd

	for process in /proc/[0-9]*
	do
		cwd=$(readlink "$process/cwd" 2>/dev/null) || continue
		case $cwd in
			"$1" | "$1"/*) echo "${process#/proc/}" ;;
		esac
	done
}

any_below()
{
	[ -n "$(pids_below "$1")" ]
}

# End every server below a folder (at once, but so that it removes its shared memory), then whatever else is left.
end_below()
{
	local file pid

	while read -r file
	do
		pid=$(head -n 1 "$file" 2>/dev/null) || continue
		[ "$(readlink "/proc/$pid/cwd")" = "${file%/*}" ] && kill -QUIT "$pid" 2>/dev/null
	done < <(find "$1" -name postmaster.pid 2>/dev/null)
	pids_below "$1" | xargs -r kill -TERM 2>/dev/null
	wait_gone 10 any_below "$1" || pids_below "$1" | xargs -r kill -KILL 2>/dev/null
	wait_gone 5 any_below "$1"
}

# Run a command in a process group of its own, which clean_work ends if we are told to stop meanwhile.
guarded()
{
	local status=0

	set -m
	"$@" </dev/null &
	GUARDED=$!
	set +m
	wait "$GUARDED" || status=$?
	GUARDED=''
	return "$status"
}

# Copy the source tree as it stands: tracked and new files, no build products. Times are kept, for make.
copy_source()
{
	if git -C "$TOP" rev-parse --is-inside-work-tree >/dev/null 2>&1
	then
		(
			cd "$TOP" || exit
			git ls-files -z --cached --others --exclude-standard --deduplicate |
				while IFS= read -r -d '' file
				do
					[ ! -e "$file" ] || printf '%s\0' "$file"
				done |
				tar --null --no-recursion -T - -cf -
		) | tar -C "$1" --no-same-owner -xf -
	else
		tar -C "$TOP" --exclude=./.git --exclude='*.o' --exclude='*.bc' --exclude='*.so' --exclude='*.d' -cf - . |
			tar -C "$1" --no-same-owner -xf -
	fi
}

# --- a private copy of the server's installation --------------------------------------------------------------

# A server finds its files relative to its own program file. So real copies of the programs with links to all the rest,
# at the same paths below a folder of ours, make an installation that `make install` may write to.
#   private_install PG_CONFIG FOLDER   prints the new pg_config
private_install()
{
	local pg_config=$1 root=$2 bin share lib dir

	bin=$("$pg_config" --bindir)
	share=$("$pg_config" --sharedir)
	lib=$("$pg_config" --pkglibdir)
	mkdir -p "$root$bin" "$root$share/extension" "$root$lib/bitcode"
	cp -p "$bin"/* "$root$bin/"
	for dir in "$share" "$share/extension" "$lib" "$lib/bitcode"
	do
		find "$dir" -mindepth 1 -maxdepth 1 ! -name 'job_idem*' ! -name extension ! -name bitcode \
			-exec ln -s -t "$root$dir" {} + 2>/dev/null || true
	done
	for dir in includedir pkgincludedir includedir-server
	do
		dir=$("$pg_config" "--$dir")
		[ -e "$root$dir" ] || { mkdir -p "$root${dir%/*}" && ln -s "$dir" "$root$dir"; }
	done
	echo "$root$bin/pg_config"
}

# Build the source copy and install it privately; sets PG_CONFIG and PATH. Runs as the ordinary user.
#   build_and_install SOURCE_COPY FOLDER
build_and_install()
{
	local log="$2.log"

	[ -d "$2" ] || private_install "$PG_CONFIG" "$2" >"$2.pg_config"
	PG_CONFIG=$(cat "$2.pg_config")
	PATH="$("$PG_CONFIG" --bindir):/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/bin"
	export PG_CONFIG PATH
	if ! make -C "$1" -j"$(nproc)" COPT="${JOB_IDEM_COPT:-}" PG_CONFIG="$PG_CONFIG" >"$log" 2>&1 ||
		! make -C "$1" COPT="${JOB_IDEM_COPT:-}" PG_CONFIG="$PG_CONFIG" install >>"$log" 2>&1
	then
		grep -E -A 6 ': (fatal )?error: |Error [0-9]' "$log" || tail -n 40 "$log"
		return 1
	fi
	! grep -A 6 'warning:' "$log" || true
}
