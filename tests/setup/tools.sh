# What ./test stands on, to be sourced by it: installs what is missing where that is possible, and says what to do where it is not.
# Silent where nothing is missing. Shown by tests/setup/run.

least=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
toolchain=1.95.0                                # what is installed where there is none: format and lints are known to pass with it

say() { printf '%s\n' "$*" >&2; }
stop() { say "$*"; exit 1; }
runs() { "$@" >/dev/null 2>&1; }
may_install() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

# Debian packages. A fresh machine has no lists of them; nothing that is there is taken away.
packages() {
  local -x DEBIAN_FRONTEND=noninteractive
  local install=(apt-get install -qq -y --no-remove --no-install-recommends)
  say "installing $*"
  runs "${install[@]}" "$@" || { runs apt-get update -qq || true; "${install[@]}" "$@" >/dev/null; }
}

others() {
  local missing=()
  runs python3 --version || missing+=(python3)
  runs npm --version || missing+=(npm ca-certificates)
  runs cc --version || missing+=(gcc libc6-dev)
  [ ${#missing[@]} = 0 ] && return
  may_install && packages "${missing[@]}" && return
  stop "${missing[*]} cannot be installed from here; install them (Debian, as root: apt-get install ${missing[*]}) and run ./test again"
}

# The Redis that replicas share in the tests; without it they leave out what needs it, and say so.
redis() {
  runs redis-server --version || { may_install && packages redis-server 2>/dev/null; } || true
}

is_new_enough() {
  local found
  found=$(cargo --version 2>/dev/null) || return 1
  found=${found#cargo } && found=${found%% *}
  [ "$(printf '%s\n' "$least" "$found" | sort -V | head -n 1)" = "$least" ]
}

# A toolchain of our own beside what is there: whose default it is stays as it was.
by_rustup() {
  local cargo
  say "installing Rust $toolchain"
  rustup toolchain install "$toolchain" --no-self-update --profile minimal --component rustfmt,clippy >/dev/null 2>&1 || return 1
  export RUSTUP_TOOLCHAIN=$toolchain
  cargo=$(rustup which cargo) || return 1
  PATH=${cargo%/*}:$PATH
}

rust() {
  export PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
  is_new_enough && return
  if ! command -v rustup >/dev/null && may_install; then
    packages rustup ca-certificates 2>/dev/null || true
  fi
  command -v rustup >/dev/null && by_rustup && return
  stop "cargo is not installed or too old; get a Rust toolchain ($least or newer, best with rustup) and run ./test again"
}

components() {
  local component
  for component in rustfmt clippy; do
    runs cargo "${component/rustfmt/fmt}" --version && continue
    say "installing $component"
    runs rustup component add "$component" ||
      stop "$component is not installed; add it to the Rust toolchain (rustup component add $component) and run ./test again"
  done
}

others
redis
rust
components
