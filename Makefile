# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

# Each target's own words are its documentation: `make` shows them.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv/bin/python

-include lab/lab.mk

.PHONY: help setup venv check sanity ecosystem browser fuzz scenario steady molecule test test-long bench bench-compile bench-allocate bench-hints bench-tick bench-rollout bench-handover bench-handover-planning bench-fleet bench-rollout-fleet bench-kubelet bench-devices bench-tenants bench-collect bench-many-units rollout drift changelog clean distclean

help: ## show this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## make .venv with the pinned tools; name or install the Debian packages for VMs
	@$(PYTHON) tools/setup.py --packages

venv:
	@$(PYTHON) tools/setup.py

rollout: venv ## roll a profile out to an embedded node, or INVENTORY=hosts.yml; PROFILE=examples/edge.yml
	@$(VENV) tools/rollout.py rollout --inventory "$(INVENTORY)" --profile "$(PROFILE)"

drift: venv ## show what differs on this machine, or INVENTORY=hosts.yml, from PROFILE; changes nothing
	@$(VENV) tools/rollout.py drift --inventory "$(INVENTORY)" --profile "$(PROFILE)"

check: venv ## everything that needs no VM: linters, types, unit tests (about a minute)
	@$(VENV) tools/suite.py check

sanity: venv ## ansible-test sanity over the files as they are
	@$(VENV) tools/suite.py sanity

ecosystem: venv ## build, install and import the collection; what its users' tools and other Pythons say
	@$(VENV) tools/suite.py ecosystem units

browser: venv ## the fleet's page in Debian's Chromium: with and without scripts, light and dark, narrow and printed
	@$(VENV) tools/suite.py browser

fuzz: venv ## hostile inputs for all that is read: SEED=7 COUNT=10000 (of each target) or SECONDS=600, ONLY=podman,snapshot; REPLAY=FILE
	@$(VENV) tools/fuzz.py --seed "$(SEED)" --count "$(COUNT)" --seconds "$(SECONDS)" --only "$(ONLY)" --replay "$(REPLAY)"

scenario: setup ## one scenario on a VM, with its log: NAME=gc; KEEP=1 lets its node run afterwards; RELEASE=trixie
	@$(if $(filter-out file,$(origin RELEASE)),CORRAL_RELEASE="$(RELEASE)" )$(VENV) tools/scenarios.py "$(if $(filter-out file,$(origin NAME)),$(NAME))" --keep="$(KEEP)"

steady: setup ## scenarios ten times each beside two busy loops: NAMES="gc endure"; RUNS=10
	@$(VENV) tools/steady.py $(NAMES) --runs $(or $(RUNS),10)

molecule: setup ## the scenarios on VMs
	@$(VENV) tools/suite.py molecule

test: setup ## the tests of the nodes, the code and the built collection, VMs included
	@$(VENV) tools/suite.py check sanity ecosystem browser molecule

test-long: setup ## the same with more kills, faults, random cases, releases, and cuts of power
	@CORRAL_LONG=1 CORRAL_KILLS=$${CORRAL_KILLS:-30} CORRAL_STEPS=all $(VENV) tools/suite.py check sanity ecosystem browser units molecule

bench: bench-compile bench-allocate bench-hints bench-tick bench-rollout bench-handover bench-handover-planning bench-fleet bench-rollout-fleet bench-kubelet bench-devices bench-tenants bench-collect bench-many-units ## all benchmarks, by hand; none of them is a test

bench-compile: venv ## compile profiles for recorded machines and for growing ones
	@$(VENV) tests/benchmarks/compile.py

bench-hints: venv ## decide NUMA affinities on up to 64 nodes
	@$(VENV) tests/benchmarks/hints.py

bench-allocate: venv ## choose CPUs for containers, on up to 1,024 CPUs and 64 NUMA nodes
	@$(VENV) tests/benchmarks/allocate.py

bench-tick: venv ## one converged tick of the agent on a made-up node (on a real one: tests/benchmarks/tick.py)
	@$(VENV) tests/benchmarks/tick.py --fake

bench-rollout: setup ## a profile against a playbook of stock modules, on a VM
	@$(VENV) tests/benchmarks/rollout.py

bench-handover: setup ## how long CPUs are on their way from pool to pool, on a VM
	@$(VENV) tests/benchmarks/handover.py

bench-many-units: venv ## plan a pattern that matches up to 10,000 units
	@$(VENV) tests/benchmarks/many_units.py

bench-handover-planning: venv ## plan hand-overs of up to 500 exclusive grants
	@$(VENV) tests/benchmarks/handover_planning.py

bench-fleet: venv ## the fleet's report and its page for up to 10,000 hosts
	@$(VENV) tests/benchmarks/fleet.py

bench-rollout-fleet: venv ## what a rollout over 200 fake nodes costs the controller, against a ping of as many
	@$(VENV) tests/benchmarks/rollout_fleet.py

bench-devices: venv ## choose among 1,000 devices; admit a workload with devices and tenants against without
	@$(VENV) tests/benchmarks/devices.py

bench-tenants: setup ## how soon a tenant's process answers beside another tenant's fork bomb and memory hog, on a VM
	@$(VENV) tests/benchmarks/tenants.py

bench-kubelet: venv ## inspect the kubelet of a made-up node with up to 250 pods
	@$(VENV) tests/benchmarks/kubelet_pods.py

bench-collect: setup ## garbage collection: deciding, and a pass on a VM beside podman image prune
	@$(VENV) tests/benchmarks/collect.py

changelog: venv ## at a release: take changelogs/fragments and new modules into CHANGELOG.md
	@PATH=.venv/bin:$$PATH antsibull-changelog release --update-existing --reload-plugins

clean: ## remove what tests and tools left in the checkout
	@rm -rf .cache .hypothesis .mypy_cache .pytest_cache .ruff_cache tests/output changelogs/.plugin-cache.yaml
	@find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

distclean: clean ## clean, and .venv and .ansible as well
	@rm -rf .venv .ansible
