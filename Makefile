# job_idem: build, install and test
#
#   make, make install, make installcheck   as for any PGXS extension; PG_CONFIG picks the server
#   make test     installs what is missing, starts a throw-away cluster, runs every test
#                 (T=name runs what matches the name, ONLY=regress|isolation|tap one kind)
#   make soak     the same at full length;   make matrix   the same on the other server versions
#   test/lib/dev  a cluster that stays, for single tests while working on the code
#   make demo     runs the demonstration;    make bench    runs the benchmarks

DRIVEN = test soak matrix demo bench

ifneq (,$(filter $(DRIVEN),$(MAKECMDGOALS)))

# These come first and apart: on a fresh machine there is no pg_config yet.
.PHONY: $(DRIVEN)

test:
	@test/lib/run_tests
soak:
	@JOB_IDEM_SOAK=1 test/lib/run_tests
matrix:
	@test/lib/matrix
demo:
	@test/lib/with_cluster -c fsync=on test/demo/run
bench:
	@test/lib/with_cluster test/bench/run

export T ONLY

else

EXTENSION = job_idem
MODULE_big = job_idem
EXTVERSION := $(shell sed -n "s/^default_version *= *'\(.*\)'.*/\1/p" job_idem.control)

OBJS := $(patsubst %.c,%.o,$(sort $(wildcard src/*.c)))
DEPS := $(OBJS:.o=.d)

# The install script is made of parts; released upgrade scripts are files of their own.
SCRIPT = job_idem--$(EXTVERSION).sql
SCRIPT_PARTS := $(sort $(wildcard sql/job_idem/[0-9][0-9]_*.sql))
DATA := $(wildcard sql/job_idem--*--*.sql)
DATA_built = $(SCRIPT)

PG_CPPFLAGS = -DJOB_IDEM_VERSION='"$(EXTVERSION)"'
# The fmgr interface hands every function arguments it need not use.
PG_CFLAGS = -Wall -Wextra -Wno-unused-parameter -MMD -MP

REGRESS := $(patsubst sql/%.sql,%,$(sort $(filter-out sql/job_idem--%,$(wildcard sql/*.sql))))
REGRESS_OPTS = --load-extension=job_idem --outputdir=tmp_check_regress
ISOLATION := $(patsubst test/specs/%.spec,%,$(sort $(wildcard test/specs/*.spec)))
ISOLATION_OPTS = --inputdir=test --load-extension=job_idem --outputdir=tmp_check_iso
TAP_TESTS = 1
PROVE_TESTS = test/t/*.pl

EXTRA_CLEAN = $(DEPS) $(wildcard job_idem--*.sql) tmp_check_regress

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs)
include $(PGXS)

# Also on the folder, so that a removed part is noticed.
$(SCRIPT): $(SCRIPT_PARTS) sql/job_idem job_idem.control
	cat $(SCRIPT_PARTS) > $@.tmp && mv $@.tmp $@

# The version is compiled in. Bitcode follows its object, whose dependencies the compiler wrote down.
$(OBJS): job_idem.control Makefile
$(OBJS:.o=.bc): %.bc: %.o
-include $(DEPS)

endif
