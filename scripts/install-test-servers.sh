#!/bin/sh
# Installs the servers that the end-to-end tests and `make bench` talk to, from the distribution. Starts none of them.
# Where it cannot, it says so and succeeds: the tests that need them skip with the same reason.
set -eu

missing=
need() { command -v "$1" >/dev/null 2>&1 || missing="$missing $2"; }
need prometheus prometheus
need promtool prometheus
need prometheus-alertmanager prometheus-alertmanager
need prometheus-node-exporter prometheus-node-exporter
[ -n "$missing" ] || exit 0

skip() { echo "skipped: test servers are not installed ($(echo "$missing" | tr -s ' ' '\n' | sort -u | xargs)): $1" >&2; exit 0; }
[ "$(id -u)" = 0 ] || skip "not root"
command -v apt-get >/dev/null || skip "no apt-get (this is not Debian)"

# Installing a server on Debian starts it, unless this file forbids it. What was there before is put back.
policy=/usr/sbin/policy-rc.d
kept=
restore() {
    rm -f "$policy"
    if [ -n "$kept" ]; then mv "$kept" "$policy"; fi
}
if [ -e "$policy" ] || [ -L "$policy" ]; then kept=$policy.coldaisle-kept; mv "$policy" "$kept"; fi
trap restore EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
printf '#!/bin/sh\nexit 101\n' > "$policy"
chmod 755 "$policy"

log=$(mktemp)
install() {
    # The names hold no blanks; word splitting is wanted.
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing >"$log" 2>&1
}
apt-get update -q >"$log" 2>&1 || { tail -3 "$log" >&2; skip "apt-get update failed"; }
install || { tail -5 "$log" >&2; skip "apt-get install failed"; }
rm -f "$log"
