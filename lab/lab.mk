# Copyright (c) 2026 Corral contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

NAME ?= n1
TOPOLOGY ?= two-nodes-smt
RELEASE ?= bookworm
CGROUP ?= v2

.PHONY: lab-packages lab-image lab-up lab-down lab-list lab-ssh

lab-packages: ## install the Debian packages that virtual nodes need, or name them
	@lab/lab packages

lab-image: lab-packages ## make the image of a virtual node
	@lab/lab image --release $(RELEASE)

lab-up: lab-packages ## start the virtual node NAME=n1; TOPOLOGY=four-nodes-smt RELEASE=trixie CGROUP=v1 for others
	@lab/lab up $(NAME) --topology $(TOPOLOGY) --release $(RELEASE) --cgroup $(CGROUP)

lab-down: ## end the virtual node NAME=n1
	@lab/lab down $(NAME)

lab-list: ## the virtual nodes that run
	@lab/lab list

lab-ssh: ## a shell on the virtual node NAME=n1
	@lab/lab ssh $(NAME)
