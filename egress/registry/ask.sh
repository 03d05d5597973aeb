# Asks the package managers that are here where they fetch from, and prints their answers,
# each line behind the name of what answered. What is not here says nothing.
LC_ALL=C
export LC_ALL
cd / || exit 1

say() {
	while IFS= read -r line; do printf '%s\t%s\n' "$1" "$line"; done
}

has() { command -v "$1" >/dev/null 2>&1; }

for pip in pip3 pip; do
	has $pip || continue
	$pip config list 2>/dev/null | say pip
	{ $pip download --help 2>/dev/null | tr '\n' ' '; echo; } | say pip-help
	break
done

if has npm; then
	npm config ls 2>/dev/null | say npm
	npm config get registry 2>/dev/null | say npm-registry
fi

if has go; then
	go env GOPROXY 2>/dev/null | say go-proxy
	go env GOSUMDB 2>/dev/null | say go-sumdb
	go env -changed GOPROXY GOSUMDB 2>/dev/null | say go-changed
fi

if has cargo; then
	for file in "${CARGO_HOME:-$HOME/.cargo}"/config "${CARGO_HOME:-$HOME/.cargo}"/config.toml /.cargo/config.toml; do
		[ ! -f "$file" ] || say cargo <"$file"
	done
	# It has no command that says where crates are by default.
	program=$(rustup which cargo 2>/dev/null || command -v cargo)
	grep -aoE 'sparse\+https://[a-z0-9-]+(\.[a-z0-9-]+)+/' "$program" 2>/dev/null | head -n 1 | say cargo-default
fi

if has apt-get; then
	# shellcheck disable=SC2016 # apt-get fills it in
	apt-get indextargets --format '$(REPO_URI)' 2>/dev/null | sort -u | say apt
fi

exit 0
