# A fresh Debian machine with git, make and Python 3.11 needs nothing else.
BIN      := .venv/bin
SERVICES := $(BIN)/python scripts/services
PYTHONS  := . scripts/services scripts/demo-matrix scripts/promtool scripts/helm

.PHONY: help demo example demo-matrix test test-mysql test-fast lint format bench services services-down venv clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

demo: .venv/demo ## watch an order service and its relay on SQLite and files
	@$(BIN)/commitrelay demo

example: .venv/demo ## three services, one order: placed, paid and shipped exactly once
	@$(BIN)/python -m examples.orders

demo-matrix: services ## the demo on every database with every broker, as a table
	@$(BIN)/python scripts/demo-matrix

test: lint services ## everything, on real servers
	@$(BIN)/pytest -n auto --dist worksteal

test-mysql: .venv/dev ## the store's tests on Oracle's MySQL, unpacked beside the system
	@$(SERVICES) up mysql
	@COMMITRELAY_MARIADB_URL=$$($(SERVICES) url mysql) $(BIN)/pytest -n auto --dist worksteal \
		-k '(Mariadb or mysql or isolation) and not mariadb-pymysql' \
		tests/conformance/test_stores.py tests/stores/test_mysql.py tests/writing tests/inbox

test-fast: .venv/dev ## what needs no server
	@$(BIN)/pytest -n auto --dist worksteal -m 'not servers'

lint: .venv/dev ## style, types and the direction of imports
	@$(BIN)/ruff check $(PYTHONS)
	@$(BIN)/ruff format --check $(PYTHONS)
	@$(BIN)/mypy
	@MYPYPATH=scripts $(BIN)/mypy --explicit-package-bases scripts/servers scripts/services
	@MYPYPATH=scripts $(BIN)/mypy --explicit-package-bases scripts/demo-matrix
	@MYPYPATH=scripts $(BIN)/mypy --explicit-package-bases scripts/promtool
	@MYPYPATH=scripts $(BIN)/mypy --explicit-package-bases scripts/helm
	@$(BIN)/lint-imports --no-logo

format: .venv/dev ## rewrite in the house style
	@$(BIN)/ruff check --fix $(PYTHONS)
	@$(BIN)/ruff format $(PYTHONS)

bench: .venv/dev ## measure the speed beside a bare loop, on servers of its own; ARGS=…
	@$(SERVICES) up postgres@bench kafka@bench
	@$(BIN)/commitrelay bench --database $$($(SERVICES) url postgres@bench) \
		--publish $$($(SERVICES) url kafka@bench) $(ARGS); code=$$?; \
		$(SERVICES) down postgres@bench kafka@bench; exit $$code

services: .venv/dev ## start PostgreSQL and Kafka for this clone, installing what is missing
	@$(SERVICES) up

services-down: ## end them and remove their data
	@scripts/services down

venv: .venv/dev ## build .venv

clean: services-down ## remove what was built; downloads stay in the cache
	@rm -rf .venv .services build dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache

# To see the demo needs less than to work on the project.
.venv/demo: pyproject.toml
	@scripts/venv -e '.[cli]'
	@touch $@

.venv/dev: pyproject.toml
	@scripts/venv -e '.[all]' --group dev
	@touch .venv/demo $@
