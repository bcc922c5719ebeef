/*
 * init.c
 *	  Module magic and load hook; no other logic lives here.
 */
#include "postgres.h"

#include "fmgr.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

void
_PG_init(void)
{
}
