-- Nothing for PUBLIC. grant_access and grant_worker hand out what this table lists; a level has what the levels below
-- it have. No level has rights on the tables: functions check the caller's right on the job and act as their owner.

CREATE TABLE job_idem.privilege (
	level text NOT NULL CHECK (level IN ('viewer', 'worker', 'operator')),
	object text PRIMARY KEY
);
COMMENT ON TABLE job_idem.privilege IS 'what each level may call and read; set by the install script';

INSERT INTO job_idem.privilege (level, object) VALUES
	('viewer', 'TABLE job_idem.jobs'),
	('viewer', 'TABLE job_idem.runs'),
	('viewer', 'TABLE job_idem.items'),
	('viewer', 'TABLE job_idem.leases'),
	('viewer', 'TABLE job_idem.progress'),
	('viewer', 'TABLE job_idem.dead_letters'),
	('viewer', 'TABLE job_idem.failures'),
	('viewer', 'TABLE job_idem.error_rules'),
	('viewer', 'TABLE job_idem.stuck'),
	('viewer', 'TABLE job_idem.dependencies'),
	('viewer', 'TABLE job_idem.calendars'),
	('viewer', 'TABLE job_idem.calendar_days'),
	('viewer', 'FUNCTION job_idem.version()'),
	('viewer', 'FUNCTION job_idem.now()'),
	('viewer', 'FUNCTION job_idem.may_view(bigint)'),
	('viewer', 'FUNCTION job_idem.lease_holders(bigint)'),
	('viewer', 'FUNCTION job_idem.is_done(text, date, text)'),
	('viewer', 'FUNCTION job_idem.claim_status(bigint)'),
	('viewer', 'FUNCTION job_idem.item_transitions()'),
	('viewer', 'FUNCTION job_idem.run_transitions()'),
	('viewer', 'FUNCTION job_idem.audit(bigint)'),
	('viewer', 'FUNCTION job_idem.backoff_delay(integer, interval, double precision, interval, text)'),
	('viewer', 'FUNCTION job_idem.is_open_day(text, date)'),
	('viewer', 'FUNCTION job_idem.shift_open_days(text, date, integer)'),
	('viewer', 'FUNCTION job_idem.dag(text, text)'),
	('worker', 'FUNCTION job_idem.open_run(text, date, text, jsonb, integer)'),
	('worker', 'FUNCTION job_idem.add_items(bigint, text[], jsonb[])'),
	('worker', 'FUNCTION job_idem.load_items(bigint, text)'),
	('worker', 'FUNCTION job_idem.seal_run(bigint)'),
	('worker', 'FUNCTION job_idem.claim_items(text, text, date, text, interval, boolean)'),
	('worker', 'FUNCTION job_idem.claim_item(text, date, text, text, interval, jsonb, text)'),
	('worker', 'FUNCTION job_idem.mark_all_done(bigint, bigint, text[])'),
	('worker', 'FUNCTION job_idem.mark_done(bigint, text, jsonb)'),
	('worker', 'FUNCTION job_idem.mark_done_many(bigint, text[], jsonb[])'),
	('worker', 'FUNCTION job_idem.mark_failed(bigint, text, text, text, text, boolean)'),
	('worker', 'FUNCTION job_idem.mark_failed_many(bigint, text[], text[], text[], text[], boolean[])'),
	('worker', 'FUNCTION job_idem.postpone(bigint, text, interval)'),
	('worker', 'FUNCTION job_idem.release(bigint)'),
	('worker', 'FUNCTION job_idem.heartbeat(bigint, interval)'),
	('worker', 'FUNCTION job_idem.hold(bigint, text)'),
	('operator', $$FUNCTION job_idem.define_job(text, text, text, text, text, text, integer, text, text, interval,
		interval, integer, text, text, interval, interval, interval, text, integer, interval, double precision, interval,
		text, double precision, double precision, interval, integer, text, interval, integer)$$),
	('operator', 'FUNCTION job_idem.pause_job(text, text)'),
	('operator', 'FUNCTION job_idem.resume_job(text, text)'),
	('operator', 'FUNCTION job_idem.drop_job(text, text)'),
	('operator', 'FUNCTION job_idem.grant_worker(text, name)'),
	('operator', 'FUNCTION job_idem.revoke_worker(text, name)'),
	('operator', 'FUNCTION job_idem.define_calendar(text, text, text, text)'),
	('operator', 'FUNCTION job_idem.set_calendar_day(text, date, boolean, text)'),
	('operator', 'FUNCTION job_idem.load_calendar(text, text)'),
	('operator', 'FUNCTION job_idem.drop_calendar(text)'),
	('operator', 'FUNCTION job_idem.add_dependency(text, text, integer, text, text)'),
	('operator', 'FUNCTION job_idem.drop_dependency(text, text, integer)'),
	('operator', 'FUNCTION job_idem.cancel_run(bigint, text, boolean)'),
	('operator', 'FUNCTION job_idem.pause_run(bigint, text)'),
	('operator', 'FUNCTION job_idem.resume_run(bigint, text)'),
	('operator', 'FUNCTION job_idem.set_error_rule(text, text, text, text, text)'),
	('operator', 'FUNCTION job_idem.drop_error_rule(text, text, text)'),
	('operator', 'FUNCTION job_idem.expire_lease(bigint, text)'),
	('operator', 'FUNCTION job_idem.end_holder(bigint)'),
	('operator', 'FUNCTION job_idem.replay(bigint, text, jsonb)'),
	('operator', 'FUNCTION job_idem.discard(bigint, text)'),
	('operator', 'PROCEDURE job_idem.tick()');

REVOKE ALL ON SCHEMA job_idem FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA job_idem FROM PUBLIC;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA job_idem FROM PUBLIC;
REVOKE ALL ON ALL ROUTINES IN SCHEMA job_idem FROM PUBLIC;
