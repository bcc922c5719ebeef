-- A schedule as a sentence, for every part of its language (S1); what is restricted, either or both, shows (C36).
\pset format unaligned
\pset tuples_only on
\pset fieldsep '  =>  '
SELECT schedule, job_idem.cron_explain(schedule) FROM unnest(ARRAY[
	-- times of day, up to four
	'30 2 * * *', '5 0 * * *', '0 9,17 * * *', '0,30 9-10 * * *', '0 */6 * * *', '0,20,40 2 3 * * *', '15 30 2 * * *',
	'@daily',
	-- minutes and hours
	'* * * * *', '*/5 * * * *', '0 * * * *', '30 9-17 * * *', '*/15 9-17 * * *', '* 9 * * *', '* 9-17 * * *',
	'5,10,20 */2 * * *',
	'0-10,30,31,50 * * * *', '10-30/5 8 * * *', '7/10 * * * *', '0 22-23,0-2 * * *', '0-10,50-59 5 * * *',
	'1,4,7,10,20 * * * *', '0-58/2 5 * * *', '0 0-23 * * *', '0,1,58,59 * * * *',
	-- seconds
	'* * * * * *', '*/10 * * * * *', '0 * * * * *', '5 * * * * *', '30 */5 * * * *', '* 0 2 * * *', '0,30 * 9-17 * * *',
	'* * 5 * * *', '* */15 * * * *',
	-- days of the month
	'0 0 15 * *', '0 0 1,15 * *', '0 0 1-7 * *', '0 0 */2 * *', '0 0 28-31,1-3 * *', '0 0 L * *', '0 0 L-1 * *',
	'0 0 L-2,L-3,L-11,L-22 * *', '0 0 15W * *', '0 0 LW * *', '0 0 L-2W * *', '0 0 1,10-12,L-5,20W,LW * *', '0 0 1-31 * *',
	-- days of the week
	'0 0 * * 0', '0 0 * * 7', '0 0 * * MON-FRI', '0 0 * * FRI-MON', '0 0 * * 6,0', '0 0 * * 1,3,5', '0 0 * * */2',
	'0 0 * * 0-6', '0 0 ? * 5L', '0 0 ? * 5#3', '0 0 ? * 0#1,1#2,2#5,3L,6', '@weekly',
	-- either
	'0 5 1-7 * 0', '* * 13 * 5', '0 5 L * MON#1', '0 5 13 * ?', '0 5 ? * 5', '0 5 13 * *', '0 0 0 ? * ?',
	-- months
	'0 0 * 1 *', '0 0 * 6-8 *', '0 0 * NOV-FEB *', '0 0 * */3 *', '0 0 1 1 *', '0 5 13 1,7 5', '* * * 12 *', '@yearly',
	'@monthly', '@hourly'
]) WITH ORDINALITY u (schedule, n) ORDER BY n;
-- with a zone, by the name the database has: does the schedule follow elapsed time, and do the clocks ever change?
SELECT schedule, job_idem.cron_explain(schedule, zone) FROM (VALUES ('30 2 * * *', 'america/new_york'),
	('30 * * * *', 'America/New_York'), ('0 */6 * * *', 'America/New_York'), ('0 0,6,12,18 * * *', 'America/New_York'),
	('0 0-23 * * *', 'Europe/Berlin'), ('30 2 * * *', 'UTC'), ('30 * * * *', 'Etc/GMT+5')) v (schedule, zone);
