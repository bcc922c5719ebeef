-- Tables. All instants come from the server's clock. There are no foreign keys: from the hot tables they would lock the
-- run row on every claim, and between tables that pg_dump takes from an extension a parallel restore does not know the
-- order of them. audit() proves what they would enforce.

-- Drawn by claims only; the token is (epoch << 44) | this number.
CREATE SEQUENCE job_idem.token_seq MAXVALUE 17592186044415 CACHE 1;
CREATE SEQUENCE job_idem.job_id_seq;
CREATE SEQUENCE job_idem.run_id_seq;
CREATE SEQUENCE job_idem.late_item_seq;
CREATE SEQUENCE job_idem.run_trigger_id_seq;
CREATE SEQUENCE job_idem.failure_id_seq;
CREATE SEQUENCE job_idem.dead_letter_id_seq;
CREATE SEQUENCE job_idem.event_id_seq;
CREATE SEQUENCE job_idem.error_rule_id_seq;

CREATE TABLE job_idem.epoch (
	epoch integer PRIMARY KEY CHECK (epoch > 0),
	system_identifier bigint NOT NULL,
	timeline integer NOT NULL,
	database oid NOT NULL,
	since timestamptz NOT NULL
);
COMMENT ON TABLE job_idem.epoch IS 'one row for each database, cluster or timeline that ever issued tokens; its number is the high part of the tokens';


CREATE FUNCTION job_idem.epoch_changed() RETURNS trigger
	LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'job_idem_epoch_changed';
COMMENT ON FUNCTION job_idem.epoch_changed() IS 'trigger of epoch: tells every backend that the epoch it keeps may be another''s by now';
CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON job_idem.epoch
	FOR EACH STATEMENT EXECUTE FUNCTION job_idem.epoch_changed();

CREATE TABLE job_idem.job (
	job_id bigint PRIMARY KEY DEFAULT pg_catalog.nextval('job_idem.job_id_seq'),
	name text COLLATE "C" NOT NULL UNIQUE CHECK (name <> '' AND pg_catalog.octet_length(name) <= 200),
	kind text NOT NULL CHECK (kind IN ('batch', 'keyed')),
	tier text NOT NULL CHECK (tier IN ('standard', 'critical')),
	owner regrole NOT NULL,
	owner_name name NOT NULL,
	version integer NOT NULL CHECK (version > 0),
	enabled boolean NOT NULL DEFAULT true,
	paused_at timestamptz,
	paused_reason text,
	dropped_at timestamptz,
	lease interval NOT NULL CHECK (lease > interval '0'),
	takeover_delay interval NOT NULL CHECK (takeover_delay >= interval '0'),
	max_lease interval NOT NULL CHECK (max_lease >= lease),
	at_max_lease text NOT NULL CHECK (at_max_lease IN ('wait', 'terminate')),
	max_attempts smallint NOT NULL CHECK (max_attempts > 0),
	backoff_base interval NOT NULL CHECK (backoff_base >= interval '0'),
	backoff_factor double precision NOT NULL CHECK (backoff_factor >= 1 AND backoff_factor < 'Infinity'),
	backoff_max interval NOT NULL CHECK (backoff_max >= backoff_base),
	unknown_as text NOT NULL CHECK (unknown_as IN ('transient', 'business')),
	retry_budget double precision CHECK (retry_budget >= 0 AND retry_budget < 'Infinity'),
	failure_threshold double precision CHECK (failure_threshold > 0 AND failure_threshold <= 1),
	failure_window interval NOT NULL CHECK (failure_window > interval '0'),
	schedule text,
	timezone text NOT NULL,
	calendar text COLLATE "C",
	business_date_offset integer NOT NULL CHECK (business_date_offset BETWEEN -3660 AND 3660),
	run_per text NOT NULL CHECK (run_per IN ('date', 'fire')),
	misfire text NOT NULL CHECK (misfire IN ('catch_up', 'latest', 'skip', 'expire')),
	misfire_grace interval NOT NULL CHECK (misfire_grace >= interval '0'),
	valid_for interval CHECK (valid_for > interval '0'),
	catch_up_limit integer NOT NULL CHECK (catch_up_limit BETWEEN 1 AND 10000),
	overlap text NOT NULL CHECK (overlap IN ('allow', 'wait', 'skip')),
	closed_day text NOT NULL CHECK (closed_day IN ('skip', 'next', 'previous')),
	plan_from timestamptz NOT NULL,
	planned_to timestamptz,
	batch_size integer NOT NULL CHECK (batch_size BETWEEN 1 AND 100000),
	item_source text,
	close_after interval NOT NULL CHECK (close_after >= interval '0'),
	created_at timestamptz NOT NULL,
	changed_at timestamptz NOT NULL,
	CHECK (kind = 'batch' OR item_source IS NULL),
	CHECK (max_attempts > 1 OR batch_size = 1),
	CHECK ((misfire = 'expire') = (valid_for IS NOT NULL))
);
COMMENT ON COLUMN job_idem.job.plan_from IS 'nothing is planned before this: when the job was defined, or revived';
COMMENT ON COLUMN job_idem.job.planned_to IS 'every planned instant up to here has its row; only a hint, that saves work';
COMMENT ON TABLE job_idem.job IS 'job definitions in force; a dropped job stays as a tombstone so that its run keys stay refused';

CREATE TABLE job_idem.job_version (
	job_id bigint NOT NULL,
	version integer NOT NULL,
	definition jsonb NOT NULL,
	valid_from timestamptz NOT NULL,
	defined_by name NOT NULL,
	PRIMARY KEY (job_id, version)
);
COMMENT ON TABLE job_idem.job_version IS 'append-only history of definitions, one row per change of a job';

CREATE TABLE job_idem.access (
	role regrole PRIMARY KEY,
	level text NOT NULL CHECK (level IN ('viewer', 'worker', 'operator'))
);
COMMENT ON TABLE job_idem.access IS 'rights on all jobs, by role (grant_access)';

CREATE TABLE job_idem.job_worker (
	job_id bigint NOT NULL,
	role regrole NOT NULL,
	PRIMARY KEY (job_id, role)
);
COMMENT ON TABLE job_idem.job_worker IS 'rights to work one job, by role (grant_worker)';

CREATE TABLE job_idem.run (
	run_id bigint PRIMARY KEY DEFAULT pg_catalog.nextval('job_idem.run_id_seq'),
	job_id bigint NOT NULL,
	run_key text COLLATE "C" NOT NULL CHECK (run_key <> '' AND pg_catalog.octet_length(run_key) <= 512),
	business_date date NOT NULL CHECK (pg_catalog.isfinite(business_date)),
	priority integer NOT NULL DEFAULT 0,
	state text NOT NULL CHECK (state IN ('loading', 'blocked', 'running', 'done', 'partial', 'cancelled',
		'skipped', 'expired')),
	version integer NOT NULL,
	batch_size integer NOT NULL CHECK (batch_size > 0),
	n_items bigint NOT NULL DEFAULT 0 CHECK (n_items >= 0),
	n_late bigint NOT NULL DEFAULT 0 CHECK (n_late >= 0),
	n_slices integer NOT NULL DEFAULT 0 CHECK (n_slices >= 0),
	n_done bigint,
	n_dead bigint,
	params jsonb,
	reason text,
	paused_at timestamptz,
	paused_reason text,
	retries_closed timestamptz,
	retries_from bigint NOT NULL DEFAULT 0,
	scheduled_at timestamptz,
	waits_for bigint,
	load_tries integer NOT NULL DEFAULT 0,
	load_at timestamptz,
	cancel_forced boolean NOT NULL DEFAULT false,
	opened_at timestamptz NOT NULL,
	sealed_at timestamptz,
	started_at timestamptz,
	finished_at timestamptz,
	purged_at timestamptz,
	UNIQUE (job_id, run_key),
	CHECK (state NOT IN ('done', 'partial', 'cancelled', 'skipped', 'expired') OR finished_at IS NOT NULL),
	CHECK (state NOT IN ('loading', 'blocked', 'running') OR finished_at IS NULL),
	CHECK (state NOT IN ('done', 'partial') OR (sealed_at IS NOT NULL AND n_done IS NOT NULL AND n_dead IS NOT NULL)),
	CHECK (sealed_at IS NULL OR state <> 'loading')
);
CREATE INDEX run_claimable ON job_idem.run (job_id, ((- priority::bigint)), business_date, run_id)
	WHERE state = 'running';
CREATE INDEX run_unfinished ON job_idem.run (run_id)
	WHERE finished_at IS NULL OR (state = 'cancelled' AND purged_at IS NULL);
CREATE INDEX run_unended ON job_idem.run (job_id, run_id)
	WHERE state IN ('loading', 'blocked', 'running', 'partial');
CREATE INDEX run_date ON job_idem.run (job_id, business_date);
COMMENT ON TABLE job_idem.run IS 'one job for one run key; outlives its items and is the done marker. Claims and completions never write it';
COMMENT ON COLUMN job_idem.run.n_items IS 'items sealed into slices; items that came later are counted in n_late';
COMMENT ON COLUMN job_idem.run.scheduled_at IS 'the planned instant; NULL for runs opened by hand';
COMMENT ON COLUMN job_idem.run.waits_for IS 'the run that must have ended before this one leaves blocked';
COMMENT ON COLUMN job_idem.run.load_at IS 'when tick runs the item_source of a loading run again, after load_tries failures';
COMMENT ON COLUMN job_idem.run.retries_closed IS 'when the retry budget was found spent: since then every failure makes a dead letter';
COMMENT ON COLUMN job_idem.run.retries_from IS 'retries before the budget last began anew';
COMMENT ON COLUMN job_idem.run.finished_at IS 'when the run ended; in a cancelled run leases held then may still be finished later';

CREATE TABLE job_idem.run_trigger (
	trigger_id bigint PRIMARY KEY DEFAULT pg_catalog.nextval('job_idem.run_trigger_id_seq'),
	run_id bigint NOT NULL,
	at timestamptz NOT NULL,
	by name NOT NULL
);
CREATE INDEX run_trigger_run ON job_idem.run_trigger (run_id);
COMMENT ON TABLE job_idem.run_trigger IS 'append-only, one row per open_run call, so that repeated triggers can be counted';

CREATE TABLE job_idem.tally (
	run_id bigint PRIMARY KEY,
	folded integer NOT NULL DEFAULT -1 CHECK (folded >= -1),
	behind integer[] NOT NULL DEFAULT '{}' CHECK (pg_catalog.cardinality(behind) <= 64),
	n_done bigint NOT NULL DEFAULT 0,
	n_failed bigint NOT NULL DEFAULT 0,
	n_lost bigint NOT NULL DEFAULT 0,
	n_retried bigint NOT NULL DEFAULT 0
);
COMMENT ON TABLE job_idem.tally IS 'what closed leases add up to: every slice lease up to slice `folded` is closed and counted, except those in `behind`; so is every pick lease whose pick_open is NULL';

CREATE TABLE job_idem.run_sample (
	run_id bigint NOT NULL,
	at timestamptz NOT NULL,
	is_base boolean NOT NULL DEFAULT false,
	n_done bigint NOT NULL,
	n_failed bigint NOT NULL,
	PRIMARY KEY (run_id, at)
);
COMMENT ON TABLE job_idem.run_sample IS 'what a running run had done and failed at each tick: the breaker compares now with then. A base is where its window begins at the earliest';

CREATE TABLE job_idem.error_rule (
	rule_id bigint PRIMARY KEY DEFAULT pg_catalog.nextval('job_idem.error_rule_id_seq'),
	job_id bigint,
	sqlstate text COLLATE "C" CHECK (sqlstate ~ '^[0-9A-Z]{1,5}$'),
	error_class text COLLATE "C" CHECK (error_class <> '' AND pg_catalog.octet_length(error_class) <= 200),
	kind text NOT NULL CHECK (kind IN ('transient', 'business')),
	note text,
	set_at timestamptz NOT NULL,
	set_by name NOT NULL,
	CHECK ((sqlstate IS NULL) <> (error_class IS NULL)),
	UNIQUE NULLS NOT DISTINCT (job_id, sqlstate, error_class)
);
COMMENT ON TABLE job_idem.error_rule IS 'what kind of failure an error is, by SQLSTATE prefix or error class, for one job or (job_id NULL) for all';

-- CHECK constraints of the hot tables: the server reads a CHECK's text anew for each statement, so they are short.
CREATE FUNCTION job_idem.item_is_sound(state text, token bigint, due_at timestamptz, done_at timestamptz)
	RETURNS boolean
	LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'job_idem_item_is_sound';
COMMENT ON FUNCTION job_idem.item_is_sound(text, bigint, timestamptz, timestamptz) IS
$$CHECK of item: the state is pending, waiting, claimed, done or dead; waiting <=> due_at is set; done <=> done_at is set; claimed and done have a token, pending has none$$;

CREATE FUNCTION job_idem.lease_is_sound(outcome text, closed_at timestamptz, n_done integer, n_failed integer,
	slice_no integer, picks bigint[], pick_open boolean) RETURNS boolean
	LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'job_idem_lease_is_sound';
COMMENT ON FUNCTION job_idem.lease_is_sound(text, timestamptz, integer, integer, integer, bigint[], boolean) IS
$$CHECK of lease: the outcome is open, completed, released or expired; open <=> closed_at, n_done and n_failed are not set; it has a slice_no or picks; pick_open is true in open pick leases, false or NULL in closed ones, NULL in slice leases$$;

-- The manifest. No index or predicate mentions state, token or done_at, so completing an item can be a HOT update.
CREATE TABLE job_idem.item (
	run_id bigint NOT NULL,
	item_no bigint NOT NULL,
	token bigint,
	due_at timestamptz,
	done_at timestamptz,
	attempts smallint NOT NULL DEFAULT 0,
	lost smallint NOT NULL DEFAULT 0,
	state text NOT NULL DEFAULT 'pending',
	item_key text COLLATE "C" NOT NULL,
	payload jsonb,
	result jsonb,
	PRIMARY KEY (run_id, item_no),
	UNIQUE (run_id, item_key),
	CONSTRAINT item_is_sound CHECK (job_idem.item_is_sound(state, token, due_at, done_at))
) WITH (fillfactor = 90);
CREATE INDEX item_due ON job_idem.item (run_id, due_at) WHERE due_at IS NOT NULL;
COMMENT ON TABLE job_idem.item IS 'the units of work of a run, each with its natural key; written once at load, updated only when an item is finished, failed or claimed by itself';
COMMENT ON COLUMN job_idem.item.item_no IS 'place in the run: item i > 0 lies in slice (i - 1) / batch_size; negative numbers have no slice';
COMMENT ON COLUMN job_idem.item.lost IS 'leases lost with this item in them';

-- Also the execution log: no lease is deleted before its run is purged.
CREATE TABLE job_idem.lease (
	token bigint PRIMARY KEY,
	run_id bigint NOT NULL,
	claimed_at timestamptz NOT NULL,
	deadline timestamptz NOT NULL,
	hard_deadline timestamptz NOT NULL,
	closed_at timestamptz,
	slice_no integer,
	n_items integer NOT NULL,
	n_done integer,
	n_failed integer,
	n_lost integer,
	n_retried integer,
	version integer NOT NULL,
	backend integer NOT NULL,
	bound_start timestamptz,
	pick_open boolean,
	outcome text NOT NULL DEFAULT 'open',
	worker text,
	picks bigint[],
	UNIQUE (run_id, slice_no),
	CONSTRAINT lease_is_sound CHECK (job_idem.lease_is_sound(outcome, closed_at, n_done, n_failed, slice_no, picks,
		pick_open))
) WITH (fillfactor = 60);
CREATE INDEX lease_pick ON job_idem.lease (run_id) WHERE pick_open IS NOT NULL;
COMMENT ON TABLE job_idem.lease IS 'one claim: who holds which items until when, and how it ended; the row is the fence of every later verb';
COMMENT ON COLUMN job_idem.lease.pick_open IS 'pick leases: true while open, false when closed and not yet counted in the tally, then NULL';
COMMENT ON COLUMN job_idem.lease.n_failed IS 'failures reported under this lease; with n_done and n_lost it may be less than n_items, the rest was given back';
COMMENT ON COLUMN job_idem.lease.n_retried IS 'of n_failed, those that led to a retry';
COMMENT ON COLUMN job_idem.lease.n_lost IS 'items that the lease''s expiry took back';
COMMENT ON COLUMN job_idem.lease.backend IS 'process id of the claiming backend, for people and for bound claims; behind a pooler it may serve others by now';
COMMENT ON COLUMN job_idem.lease.bound_start IS 'bound claims: when the claiming backend had started; the claim is overdue as soon as no backend has that process id and that start';

CREATE TABLE job_idem.failure (
	failure_id bigint PRIMARY KEY DEFAULT pg_catalog.nextval('job_idem.failure_id_seq'),
	run_id bigint NOT NULL,
	item_key text COLLATE "C" NOT NULL,
	token bigint NOT NULL,
	attempt smallint NOT NULL,
	failed_at timestamptz NOT NULL,
	kind text NOT NULL CHECK (kind IN ('transient', 'business', 'lost', 'unknown')),
	sqlstate text,
	error_class text,
	message text,
	retry_at timestamptz
);
CREATE INDEX failure_item ON job_idem.failure (run_id, item_key);
CREATE INDEX failure_token ON job_idem.failure (token);
COMMENT ON TABLE job_idem.failure IS 'every failed or lost try of an item; retry_at is NULL where the item became a dead letter';

CREATE TABLE job_idem.dead_letter (
	dead_letter_id bigint PRIMARY KEY DEFAULT pg_catalog.nextval('job_idem.dead_letter_id_seq'),
	run_id bigint NOT NULL,
	item_key text COLLATE "C" NOT NULL,
	reason text NOT NULL,
	kind text NOT NULL CHECK (kind IN ('transient', 'business', 'lost', 'unknown')),
	sqlstate text,
	error_class text,
	attempts smallint NOT NULL,
	payload jsonb,
	dead_at timestamptz NOT NULL,
	status text NOT NULL DEFAULT 'open' CHECK (status IN ('open', 'replayed', 'discarded')),
	resolved_at timestamptz,
	resolved_by name,
	note text,
	CHECK ((status = 'open') = (resolved_at IS NULL) AND (status = 'open') = (resolved_by IS NULL))
);
CREATE UNIQUE INDEX dead_letter_open ON job_idem.dead_letter (run_id, item_key) WHERE status = 'open';
CREATE INDEX dead_letter_item ON job_idem.dead_letter (run_id, item_key);
COMMENT ON TABLE job_idem.dead_letter IS 'items that will not be retried by themselves; replay or discard resolves one for good';

CREATE TABLE job_idem.event (
	event_id bigint PRIMARY KEY DEFAULT pg_catalog.nextval('job_idem.event_id_seq'),
	at timestamptz NOT NULL,
	by name NOT NULL,
	job_id bigint,
	run_id bigint,
	item_key text COLLATE "C",
	verb text NOT NULL,
	detail jsonb
);
CREATE INDEX event_run ON job_idem.event (run_id);
CREATE INDEX event_job ON job_idem.event (job_id);
COMMENT ON TABLE job_idem.event IS 'append-only: every operator action and every run transition; never holds payloads or messages';

CREATE FUNCTION job_idem.refuse_change() RETURNS trigger
	LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
	RAISE EXCEPTION 'rows of job_idem.% are append-only', TG_TABLE_NAME
		USING ERRCODE = 'insufficient_privilege', HINT = 'Nothing is to be done: add a new event instead.';
END
$$;
COMMENT ON FUNCTION job_idem.refuse_change() IS 'trigger of append-only tables: refuses UPDATE, DELETE and TRUNCATE (42501)';
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON job_idem.event
	FOR EACH STATEMENT EXECUTE FUNCTION job_idem.refuse_change();
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON job_idem.job_version
	FOR EACH STATEMENT EXECUTE FUNCTION job_idem.refuse_change();

SELECT pg_catalog.pg_extension_config_dump('job_idem.token_seq', '');
SELECT pg_catalog.pg_extension_config_dump('job_idem.job_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('job_idem.run_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('job_idem.late_item_seq', '');
SELECT pg_catalog.pg_extension_config_dump('job_idem.run_trigger_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('job_idem.failure_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('job_idem.dead_letter_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('job_idem.event_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('job_idem.error_rule_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('job_idem.epoch', '');
SELECT pg_catalog.pg_extension_config_dump('job_idem.job', '');
SELECT pg_catalog.pg_extension_config_dump('job_idem.job_version', '');
SELECT pg_catalog.pg_extension_config_dump('job_idem.access', '');
SELECT pg_catalog.pg_extension_config_dump('job_idem.job_worker', '');
SELECT pg_catalog.pg_extension_config_dump('job_idem.run', '');
SELECT pg_catalog.pg_extension_config_dump('job_idem.run_trigger', '');
SELECT pg_catalog.pg_extension_config_dump('job_idem.tally', '');
SELECT pg_catalog.pg_extension_config_dump('job_idem.item', '');
SELECT pg_catalog.pg_extension_config_dump('job_idem.lease', '');
SELECT pg_catalog.pg_extension_config_dump('job_idem.failure', '');
SELECT pg_catalog.pg_extension_config_dump('job_idem.dead_letter', '');
SELECT pg_catalog.pg_extension_config_dump('job_idem.event', '');
SELECT pg_catalog.pg_extension_config_dump('job_idem.run_sample', '');
SELECT pg_catalog.pg_extension_config_dump('job_idem.error_rule', '');
