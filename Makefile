# Everything works on a machine that has only Python 3.11 and make; `make help` lists the targets.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
RUN := $(VENV)/bin
PIP := PIP_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 $(RUN)/python -m pip install --quiet

.DEFAULT_GOAL := help
.PHONY: fuzz test-slow test-logs test-bounds test-wheel test-slurm chaos-slurm test-busy ci docs help demo demo-live test check bench bench-against bench-elastic fit results-dl2 results-deepshare results-deepshare-paper results-das results-das-advice results-adapt results-worlds results-growing results-slurm results-learn weights format clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.base ## Compare six policies on a production-like trace and write a report
	$(RUN)/rota compare examples/demo.toml --out out/demo --force
	@echo "Report: out/demo/report.html"

demo-live: $(VENV)/.dev ## Run six real trainings under a static and an elastic policy; some minutes
	$(RUN)/python examples/live/demo.py --out out/live

# Each worker begins with tests of its own files, so that they compile different kernels. Three, since
# tests of processes and daemons mostly wait.
test: $(VENV)/.dev ## Run the tests
	$(RUN)/python -m pytest -n 3 --dist worksteal

test-busy: $(VENV)/.dev ## Run the tests three times with one core kept busy by something else
	for turn in 1 2 3; do \
	  $(RUN)/python -c 'while True: pass' & busy=$$!; \
	  $(RUN)/python -m pytest -n 3 --dist worksteal; code=$$?; \
	  kill $$busy; [ $$code = 0 ] || exit $$code; \
	done

ci: ## Run all that must be green on main, in a copy of the last commit; slow suites only if they are due
	.ci/run

test-slow: $(VENV)/.dev ## Run the tests that take minutes
	$(RUN)/python -m pytest -n 2 -m slow

test-logs: $(VENV)/.dev ## Run the tests that read large public logs below ROTA_DATA
	$(RUN)/python -m pytest -n 2 -m logs

test-wheel: $(VENV)/.dev ## Install the wheel elsewhere and run what README and the start pages say
	$(RUN)/python -m pytest -n 2 -m wheel tests/wheel

test-slurm: $(VENV)/.dev ## Install Slurm, start one on loopback, and run the tests that need it
	sh scripts/install_slurm.sh
	$(RUN)/python -m pytest -n 3 --dist loadfile -m slurm tests/slurm

EVENTS ?= 50
POLICY ?= srtf
chaos-slurm: $(VENV)/.dev ## Kill rota, nodes and slurmctld, and fill the disk, at random: SEED=0 EVENTS=50 POLICY=srtf; needs root
	sh scripts/install_slurm.sh
	PYTHONPATH=tests/helpers $(RUN)/python tests/slurm/chaos.py --seed $(SEED) --events $(EVENTS) --policy $(POLICY)

# Code with and without bounds checks must not mix, so it is kept apart; Numba would not notice.
test-bounds: $(VENV)/.dev ## Run the tests of simulator, core, policies and systems with bounds checks
	NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=$(CURDIR)/.bounds_cache \
	  $(RUN)/python -m pytest -n 2 tests/core tests/sim tests/policies tests/envs tests/run tests/systems

check: $(VENV)/.dev ## Lint, types, import rules
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy
	$(RUN)/lint-imports

SEED ?= 0
WORLDS ?= 80
fuzz: $(VENV)/.dev ## Play random worlds under every policy: SEED=0 WORLDS=80, or REPLAY=file
	$(RUN)/rota fuzz $(if $(REPLAY),--replay $(REPLAY),--seed $(SEED) --worlds $(WORLDS)) $(FUZZ)

bench: $(VENV)/.dev ## Measure speed; also written to bench/latest.json
	$(RUN)/python bench/run.py

bench-against: $(VENV)/.dev ## Compare speed with another commit: make bench-against REV=…
	$(RUN)/python bench/against.py $(REV)

bench-elastic: $(VENV)/.dev ## Measure the pauses of elastic trainings against restarts, what floods of connections cost, and growth
	$(RUN)/python bench/elastic.py
	$(RUN)/python bench/elastic_flood.py
	$(RUN)/python bench/elastic_growth.py

fit: $(VENV)/.dev ## Fit the speed models to the profiles below ROTA_DATA; rewrite docs/speed.md
	$(RUN)/python fit/fit.py $(ROTA_DATA)

results-dl2: $(VENV)/.dev ## Train DL2 with several seeds, test it; rewrite docs/systems/dl2.md
	OMP_WAIT_POLICY=passive $(RUN)/python results/dl2.py

results-deepshare: $(VENV)/.dev ## Train DeepShare by candidates with three seeds, play it; rewrite docs/systems/deepshare.md
	OMP_WAIT_POLICY=passive $(RUN)/python results/deepshare.py

results-deepshare-paper: $(VENV)/.dev ## Train DeepShare as published, play it; rewrite docs/systems/deepshare.md
	OMP_WAIT_POLICY=passive $(RUN)/python results/deepshare_paper.py

results-das: $(VENV)/.dev ## Train DAS as published, play it, its baselines and our rules; rewrite docs/systems/das.md
	OMP_WAIT_POLICY=passive $(RUN)/python results/das.py

results-das-advice: $(VENV)/.dev ## Let the agents of the policy das learn by evolution; rewrite its weights; an hour
	OMP_WAIT_POLICY=passive $(RUN)/python results/das_advice.py

results-adapt: $(VENV)/.dev ## Train networks that grow, and agents that decide how; rewrite docs/systems/adaptation.md; an hour
	OMP_WAIT_POLICY=passive $(RUN)/python results/adapt.py

results-slurm: $(VENV)/.dev ## Run forty real jobs on a Slurm of its own under three policies; rewrite docs/slurm.md
	sh scripts/install_slurm.sh
	$(RUN)/python results/slurm.py

results-worlds: $(VENV)/.dev ## Play the policies that docs/results.md has tables of; rewrite them
	$(RUN)/python results/worlds.py

results-growing: $(VENV)/.dev ## Play what decides about growing networks; rewrite the tables of docs/growing.md
	$(RUN)/python results/growing.py

results-learn: $(VENV)/.dev ## Learn on from shipped weights on journals of other worlds; rewrite the table of docs/learn-live.md
	OMP_WAIT_POLICY=passive $(RUN)/python results/learn_live.py

weights: $(VENV)/.dev ## Train the networks that ship by their recipes, and ship the best by validation
	OMP_WAIT_POLICY=passive $(RUN)/python results/dl2.py weights

docs: $(VENV)/.dev ## Rewrite what docs take from the program: commands, options, policies
	$(RUN)/python scripts/generate_docs.py

format: $(VENV)/.dev ## Format the code
	$(RUN)/ruff check --fix .
	$(RUN)/ruff format .

clean: ## Remove what the other targets made
	rm -rf $(VENV) out bench/latest.json bench/elastic.json .mypy_cache .ruff_cache .pytest_cache .hypothesis .bounds_cache
	find src -name '*.nb[ci]' -delete -o -name rota-compiling.lock -delete

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "rota needs Python 3.11 or later; say which with make PYTHON=…"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.base: $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "Setting up $(VENV) (once) …"
	$(PIP) --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "Setting up $(VENV) (once) …"
	$(PIP) --editable '.[dev,examples,train]'
	@touch $@ $(VENV)/.base
