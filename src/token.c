/*
 * token.c - draws tokens that only grow, also across crash, failover, dump and restore.
 *
 * A token is (epoch << 44) | number. The number comes from a sequence; the epoch is that of the
 * newest row of job_idem.epoch, which belongs to one database of one cluster and timeline. The
 * first claim that finds the row to be another's adds one under a try-lock; whoever does not get
 * the lock uses the same number without adding it, since what it would add is determined. Tokens
 * are drawn after the locks of a claim, so that a later holder's is larger.
 *
 * A number is on disk before anybody sees it, whatever synchronous_commit says: a crash must not
 * issue it again. That costs at most one flush in 32 numbers, since the sequence logs so many
 * ahead.
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "commands/sequence.h"
#include "commands/trigger.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

#include "access.h"
#include "clock.h"
#include "event.h"
#include "job_idem.h"
#include "lock_tag.h"
#include "spi.h"
#include "token.h"

#define NUMBER_BITS 44
#define MAX_EPOCH ((1 << (63 - NUMBER_BITS)) - 1)

JOB_IDEM_STATEMENT(newest_epoch,
				   "SELECT epoch, system_identifier, timeline, database FROM job_idem.epoch"
				   " ORDER BY epoch DESC LIMIT 1",
				   0, InvalidOid);
JOB_IDEM_STATEMENT(put_epoch,
				   "INSERT INTO job_idem.epoch (epoch, system_identifier, timeline, database,"
				   " since) VALUES ($1, $2, $3, $4, $5) ON CONFLICT (epoch) DO NOTHING",
				   5, INT4OID, INT8OID, INT4OID, OIDOID, TIMESTAMPTZOID);

/*
 * The epoch in force is kept from one claim to the next: reading the row costs as much as drawing
 * the number. Whatever changes the table sends an invalidation (its trigger, epoch_changed), so
 * that no backend goes on with an epoch that another has left.
 */
static struct
{
	bool valid;
	bool registered;
	Oid table;
	TimeLineID timeline;
	int32 number;
} kept;

typedef struct Epoch
{
	int32 number;
	bool ours; /* of this database, cluster and timeline */
} Epoch;

int64
JobIdemNextValue(const char *sequence)
{
	Oid schema = get_namespace_oid("job_idem", false);
	Oid relation = get_relname_relid(sequence, schema);

	return DatumGetInt64(DirectFunctionCall1(nextval_oid, ObjectIdGetDatum(relation)));
}

/* The next number, on disk. */
static int64
DrawNumber(void)
{
	Oid sequence = get_relname_relid("token_seq", get_namespace_oid("job_idem", false));
	int64 number = DatumGetInt64(DirectFunctionCall1(nextval_oid, ObjectIdGetDatum(sequence)));
	Relation relation = relation_open(sequence, NoLock);
	Buffer buffer = ReadBuffer(relation, 0);
	XLogRecPtr logged;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	logged = PageGetLSN(BufferGetPage(buffer));
	UnlockReleaseBuffer(buffer);
	relation_close(relation, NoLock);
	XLogFlush(logged);
	return number;
}

static void
NoteEpoch(int32 number)
{
	JobIdemArgs args = {.n = 0};

	JobIdemArg(&args, Int32GetDatum(number));
	JobIdemArg(&args, Int64GetDatum((int64) GetSystemIdentifier()));
	JobIdemArg(&args, Int32GetDatum((int32) GetWALInsertionTimeLine()));
	JobIdemArg(&args, ObjectIdGetDatum(MyDatabaseId));
	JobIdemArg(&args, TimestampTzGetDatum(JobIdemNow()));
	(void) JobIdemRunLatest(&put_epoch, &args, 0);
}

static Epoch
ReadEpoch(void)
{
	JobIdemArgs none = {.n = 0};
	int32 timeline = (int32) GetWALInsertionTimeLine();
	Epoch epoch = {.number = Max(1, timeline)};

	if (JobIdemRunLatest(&newest_epoch, &none, 1) == 0)
		return epoch;
	epoch.ours = JobIdemInt64(0, 2) == (int64) GetSystemIdentifier() &&
		JobIdemInt32(0, 3) == timeline && JobIdemOid(0, 4) == MyDatabaseId;
	epoch.number = epoch.ours ? JobIdemInt32(0, 1) : Max(JobIdemInt32(0, 1) + 1, timeline);
	return epoch;
}

static void
CheckEpoch(int32 number)
{
	if (number > MAX_EPOCH)
		ereport(ERROR,
				(errcode(ERRCODE_JI_LIMIT_EXCEEDED),
				 errmsg("token epochs are used up"),
				 errdetail("Epoch %d is larger than %d.", number, MAX_EPOCH),
				 errhint("Dump the data into a new database after dropping old runs and"
						 " job_idem.epoch.")));
}

static void
ForgetEpoch(Datum argument, Oid relation)
{
	if (relation == kept.table || relation == InvalidOid)
		kept.valid = false;
}

static void
KeepEpoch(int32 number)
{
	if (!kept.registered)
		CacheRegisterRelcacheCallback(ForgetEpoch, (Datum) 0);
	kept.registered = true;
	kept.table = get_relname_relid("epoch", get_namespace_oid("job_idem", false));
	kept.timeline = GetWALInsertionTimeLine();
	kept.number = number;
	kept.valid = true;
}

/*
 * Reads the epoch, adds one if the newest is another's, and keeps it once it stands in the table.
 */
static int32
CurrentEpoch(void)
{
	Epoch epoch;

	if (kept.valid && kept.timeline == GetWALInsertionTimeLine())
		return kept.number;
	epoch = ReadEpoch();
	CheckEpoch(epoch.number);
	if (epoch.ours)
		KeepEpoch(epoch.number);
	else if (JobIdemTryLock(LOCK_EPOCH, 0, 0, true))
		NoteEpoch(epoch.number);
	return epoch.number;
}

int64
JobIdemDrawToken(void)
{
	int64 epoch = CurrentEpoch();

	return (epoch << NUMBER_BITS) | DrawNumber();
}

/* AFTER trigger of job_idem.epoch, for each statement. */
PG_FUNCTION_INFO_V1(job_idem_epoch_changed);
Datum
job_idem_epoch_changed(PG_FUNCTION_ARGS)
{
	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("epoch_changed is a trigger function"),
				 errhint("It stands on job_idem.epoch already.")));
	CacheInvalidateRelcache(((TriggerData *) fcinfo->context)->tg_relation);
	PG_RETURN_POINTER(NULL);
}

PG_FUNCTION_INFO_V1(job_idem_advance_epoch);
Datum
job_idem_advance_epoch(PG_FUNCTION_ARGS)
{
	char *reason = PG_ARGISNULL(0) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(0));
	JobIdemScope scope;
	Epoch epoch;

	JobIdemEnter(&scope);
	JobIdemRequireOwner("advance the token epoch");
	JobIdemLock(LOCK_EPOCH, 0, 0, true);
	epoch = ReadEpoch();
	epoch.number += epoch.ours ? 1 : 0;
	CheckEpoch(epoch.number);
	NoteEpoch(epoch.number);
	/* a crash must not take it back from under the tokens that are issued next */
	ForceSyncCommit();
	JobIdemEvent("advance_epoch", 0, 0, NULL, psprintf("{\"epoch\": %d}", epoch.number), reason);
	JobIdemLeave(&scope);
	PG_RETURN_INT32(epoch.number);
}
