# Sourced by the scripts in this folder that install packages on Debian and Ubuntu.

as_root() { # runs a command as root, with sudo if that needs no password
    if [[ $(id -u) == 0 ]]; then "$@"; else sudo -n "$@"; fi
}

apt_install() { # installs packages without starting the servers in them
    local attempt policy=/usr/sbin/policy-rc.d
    if ! command -v apt-get >/dev/null || ! as_root true 2>/dev/null; then
        echo "missing: $*. Install as root with: apt-get install $*"
        return 1
    fi
    # Packages ask this script whether they may start their server.
    if [[ ! -e $policy ]]; then
        trap "as_root rm -f $policy" EXIT
        printf '#!/bin/sh\nexit 101\n' | as_root tee $policy >/dev/null
        as_root chmod +x $policy
    fi
    # Wait for other package managers. DPkg::Lock::Timeout does not cover the lock of the package lists.
    for attempt in {1..60}; do
        as_root apt-get -qq update && break
        sleep 5
    done
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get -qq -o DPkg::Lock::Timeout=600 install -y --no-install-recommends "$@"
} >&2
