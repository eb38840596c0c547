# The commands of this project. `make demo` and `make test` do all the set-up themselves, in this folder, without root.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
TOOLS  := $(VENV)/.tools
WARM   := $(VENV)/.compiled
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check
UV     := $(BIN)/uv pip install --quiet --python $(BIN)/python
NEXT   := next: `make demo`, or your own data with $(BIN)/dither define and $(BIN)/dither up
SLOW   := uv does not reach the packages: pip installs them, with its own settings

# In how many processes `make test` runs: tests wait for servers now and then.
PROCESSES ?= 6
PYTEST    := OPENBLAS_NUM_THREADS=1 DITHER_TEST_PROCESSES=$(PROCESSES) $(BIN)/python -m pytest -q --tb=no

# Tests start many processes: each would compile every module again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup tools demo test test-more test-all lint docs audit bench slow faults mutations lock images proto screenshots reproduction kafka dist clean

help:            ## show this list
	@grep -E '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(STAMP)  ## install Dither into ./.venv, with all that `dither demo` and `dither up` need
	@$(if $(filter setup,$(MAKECMDGOALS)),echo '$(NEXT)',:)

$(STAMP): requirements.lock pyproject.toml
	@echo "setting up $(VENV) (first time: half a minute)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Dither needs Python 3.11 or newer; set PYTHON=/path/to/python3.11"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@sed -n '/^uv==/,/[^\\]$$/p' requirements.lock > $(VENV)/uv.lock  # uv installs in a tenth of pip's time
	@$(PIP) --require-hashes -r $(VENV)/uv.lock
	@$(UV) --require-hashes --constraint requirements.lock --requirement pyproject.toml --extra demo \
	  && $(UV) --no-deps --build-constraints requirements.lock --editable . \
	  || { echo "$(SLOW)"; $(PIP) --require-hashes -r requirements.lock && $(PIP) --no-deps --no-build-isolation --editable .; }
	@touch $@

tools: $(TOOLS)  ## install what tests, linters and the docs need, too

$(TOOLS): $(STAMP)
	@echo "adding the tools of the project to $(VENV) (first time: a minute or two)"
	@$(UV) --require-hashes -r requirements.lock || { echo "$(SLOW)"; $(PIP) --require-hashes -r requirements.lock; }
	@touch $@

demo: setup      ## replay a year of flights as private telemetry; ARGS="--seconds 20 --json"
	@$(BIN)/dither demo $(ARGS)

# Modules of tests, as pytest rewrites them, and what they import: once, not in each run.
$(WARM): $(TOOLS)
	@$(BIN)/python -m compileall -q estimators producers aggregator dither reproduction
	@$(BIN)/python -m pytest --collect-only -q -m "" >/dev/null 2>&1 || true  # pytest tells what is wrong when it runs the tests
	@touch $@

test: tools kafka $(WARM) ## run the tests that find most faults, in four minutes; ARGS="-k verify"
	@$(PYTEST) $(ARGS)

test-more: tools kafka $(WARM) ## run the rest of what continuous integration runs, in six minutes
	@$(PYTEST) -m "more and not slow" $(ARGS)

test-all: test test-more ## run both

kafka: setup     ## fetch Apache Kafka's jars where Java 17 and Maven are there
	@$(BIN)/dither kafka --fetch --if-possible

lint: tools      ## ruff, mypy --strict, which package may import which, and what docstrings say
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports
	@$(BIN)/mypy $(MYPY)
	@$(BIN)/python -m deploy.checks
	@$(BIN)/python -m tests.mutations --list >/dev/null

docs: tools      ## build the site of docs/ into ./site, and check every link; to look: python3 -m http.server -d site
	@PATH="$(CURDIR)/$(BIN):$$PATH" NO_MKDOCS_2_WARNING=1 mkdocs build

audit: tools     ## ask the advisory database about every pinned dependency
	@$(BIN)/python deploy/audit.py

slow: tools kafka ## run the tests that take minutes
	@$(BIN)/python -m pytest -m slow tests $(ARGS)

faults: tools kafka ## kill, freeze, cut and flush: 500 random schedules of faults, then each kind by name (an hour)
	@$(BIN)/python -m pytest -m "slow or not slow" tests/services/faults

mutations: tools kafka ## break the product in 60 places, one at a time: which do the tests find? (hours)
	@$(BIN)/python -m tests.mutations $(ARGS)

bench: setup kafka ## every stage and every peer, as ratios against a baseline in the same run; ARGS="--only randomize"
	@$(BIN)/dither bench $(ARGS)

lock: setup      ## pin the newest allowed dependencies in requirements.lock
	@$(BIN)/uv pip compile --quiet --upgrade pyproject.toml --extra crowds --extra demo --extra otel --extra plots --extra tables --group dev --universal \
	  --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header -o requirements.lock

images:          ## build the container image with Docker, or buildah; ARGS="--base debian" without a registry
	@$(PYTHON) -m deploy.images $(ARGS)

proto: tools     ## regenerate the code of the wire formats from producers/wire/*.proto
	@$(BIN)/python -m grpc_tools.protoc --proto_path=. --python_out=. --pyi_out=. producers/wire/reports.proto producers/wire/report_batches.proto

screenshots: tools ## take the pictures of the dashboard in docs/images (Chromium; nine minutes)
	@$(BIN)/python -m deploy.screenshots

reproduction: tools ## run the commands of docs/reproduction.md again, figures too (hours); ARGS="adpm-table2"
	@$(BIN)/python deploy/reproduction.py $(ARGS)

dist: tools      ## make the wheel, the source distribution, the npm package and the image, in ./dist
	@$(BIN)/python -m deploy.dist $(ARGS)

clean:           ## remove the virtual environment, caches and Kafka's jars
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis site dist deploy/kafka/jars deploy/kafka/target
