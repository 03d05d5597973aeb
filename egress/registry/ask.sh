# Asks the package managers that are here where they fetch from, and prints their answers,
# each line behind the name of what answered. What is not here says nothing.
LC_ALL=C
export LC_ALL
cd / || exit 1

# say prints the lines of an answer; one that does not end is cut off.
say() {
	head -c 50000 | while IFS= read -r line; do printf '%s\t%s\n' "$1" "$line"; done
}

has() { command -v "$1" >/dev/null 2>&1; }

pip=pip3
has pip3 || pip=pip

ask() {
	case $1 in
	pip)
		has $pip || return
		$pip config list 2>/dev/null | say pip
		;;
	pip-help)
		has $pip || return
		{ $pip download --help 2>/dev/null | tr '\n' ' '; echo; } | say pip-help
		;;
	npm)
		npm config ls 2>/dev/null | say npm
		;;
	npm-registry)
		npm config get registry 2>/dev/null | say npm-registry
		;;
	go)
		go env GOPROXY 2>/dev/null | say go-proxy
		go env GOSUMDB 2>/dev/null | say go-sumdb
		go env -changed GOPROXY GOSUMDB 2>/dev/null | say go-changed
		;;
	cargo)
		has cargo || return
		for file in "${CARGO_HOME:-$HOME/.cargo}"/config "${CARGO_HOME:-$HOME/.cargo}"/config.toml /.cargo/config.toml; do
			[ ! -f "$file" ] || say cargo <"$file"
		done
		# It has no command that says where crates are by default.
		program=$(rustup which cargo 2>/dev/null || command -v cargo)
		grep -aoE 'sparse\+https://[a-z0-9-]+(\.[a-z0-9-]+)+/' "$program" 2>/dev/null | head -n 1 | say cargo-default
		;;
	apt)
		# shellcheck disable=SC2016 # apt-get fills it in
		apt-get indextargets --format '$(REPO_URI)' 2>/dev/null | say apt
		;;
	esac
}

# and asks one of them, and prints what was said before it and then its answer. The parts
# of a pipe run side by side: all are asked at once, and their answers do not mix.
and() {
	answer=$(ask "$1" </dev/null)
	cat
	[ -z "$answer" ] || printf '%s\n' "$answer"
}

: | and pip | and pip-help | and npm | and npm-registry | and go | and cargo | and apt

exit 0
