#!/bin/sh
# Installs the servers that the end-to-end tests talk to, from the distribution. Starts none of them.
set -eu
skip() { echo "skipped: test servers are not installed: $1" >&2; exit 0; }
command -v prometheus >/dev/null && command -v promtool >/dev/null && command -v prometheus-node-exporter >/dev/null && exit 0
[ "$(id -u)" = 0 ] || skip "not root"
command -v apt-get >/dev/null || skip "no apt-get (this is not Debian)"
policy=/usr/sbin/policy-rc.d
# Without this, installing a server on Debian also starts it.
if [ ! -e "$policy" ]; then printf '#!/bin/sh\nexit 101\n' > "$policy"; chmod 755 "$policy"; trap 'rm -f "$policy"' EXIT; fi
apt-get update -q
DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends prometheus prometheus-node-exporter >/dev/null
