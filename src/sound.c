/*
 * sound.c - what must hold inside one row of item and of lease; called by their CHECK constraints.
 *
 * In C because the server reads a CHECK's text anew for every statement that writes the table: ten
 * constraints written out cost as much as the rest of marking one item (measured: batches of 1 ran
 * at half the speed). Pure.
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/builtins.h"

#include "compat.h"

static bool
Equals(const text *value, const char *word)
{
	size_t length = strlen(word);

	return VARSIZE_ANY_EXHDR(value) == length && memcmp(VARDATA_ANY(value), word, length) == 0;
}

/*
 * (state, token, due_at, done_at): waiting <=> due, done <=> done_at, claimed => token; a done
 * item has a token too
 */
PG_FUNCTION_INFO_V1(job_idem_item_is_sound);
Datum
job_idem_item_is_sound(PG_FUNCTION_ARGS)
{
	text *state = PG_GETARG_TEXT_PP(0);
	bool has_token = !PG_ARGISNULL(1);
	bool has_due = !PG_ARGISNULL(2);
	bool has_done = !PG_ARGISNULL(3);

	if (Equals(state, "pending"))
		PG_RETURN_BOOL(!has_due && !has_done && !has_token);
	if (Equals(state, "waiting"))
		PG_RETURN_BOOL(has_due && !has_done);
	if (Equals(state, "claimed") || Equals(state, "dead"))
		PG_RETURN_BOOL(!has_due && !has_done && (has_token || Equals(state, "dead")));
	PG_RETURN_BOOL(Equals(state, "done") && !has_due && has_done && has_token);
}

/*
 * (outcome, closed_at, n_done, n_failed, slice_no, picks, pick_open): a slice or picks; open <=>
 * no time and no counts; pick_open of picks is true while open and false or NULL after it, of a
 * slice NULL.
 */
PG_FUNCTION_INFO_V1(job_idem_lease_is_sound);
Datum
job_idem_lease_is_sound(PG_FUNCTION_ARGS)
{
	text *outcome = PG_GETARG_TEXT_PP(0);
	bool open = Equals(outcome, "open");
	bool is_slice = !PG_ARGISNULL(4);
	bool has_pick_open = !PG_ARGISNULL(6);

	if (!open && !Equals(outcome, "completed") && !Equals(outcome, "released") &&
		!Equals(outcome, "expired"))
		PG_RETURN_BOOL(false);
	if (PG_ARGISNULL(1) != open || PG_ARGISNULL(2) != open || PG_ARGISNULL(3) != open)
		PG_RETURN_BOOL(false);
	if (is_slice != PG_ARGISNULL(5))
		PG_RETURN_BOOL(false);
	if (is_slice)
		PG_RETURN_BOOL(!has_pick_open && PG_GETARG_INT32(4) >= 0);
	if (open)
		PG_RETURN_BOOL(has_pick_open && PG_GETARG_BOOL(6));
	PG_RETURN_BOOL(!has_pick_open || !PG_GETARG_BOOL(6));
}
