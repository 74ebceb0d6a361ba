#!/usr/bin/env bash
# See that Java 17 or newer is there: install Debian's when this machine lets us, else say what to install.
# Only Spark needs it, so its absence fails nothing.
set -euo pipefail

say() { printf 'java: %s\n' "$*" >&2; }

# The major version a `java` reports, 0 if it does not run. "17.0.15" is 17, "1.8.0_442" is 8.
java_major() {
    local version
    version=$("$1" -version 2>&1 | sed -n 's/^[^"]* version "\(1\.\)\{0,1\}\([0-9]\{1,\}\).*/\2/p' | head -n 1) || true
    echo "${version:-0}"
}

has_java() {
    # Spark starts $JAVA_HOME/bin/java where that is set.
    (($(java_major "${JAVA_HOME:+$JAVA_HOME/bin/}java") >= 17))
}

install_with_apt() {
    [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null || return 1
    say "no Java 17 or newer found; installing Debian's (only Spark needs it)"
    export DEBIAN_FRONTEND=noninteractive
    # The package registers its manual pages, and fails where a slim image has removed their directory.
    mkdir -p /usr/share/man/man1 2>/dev/null || true
    local output package
    if ! output=$(apt-get -o Acquire::Retries=1 -o Acquire::http::Timeout=30 update 2>&1); then
        say "apt-get update failed: $(tail -n 1 <<<"$output")"
        return 1
    fi
    # Releases after Debian 12 have dropped 17 and have a newer one as their default.
    for package in openjdk-17-jre-headless default-jre-headless; do
        if output=$(apt-get install -y --no-install-recommends "$package" 2>&1); then
            return 0
        fi
        say "apt-get install $package failed: $(tail -n 1 <<<"$output")"
    done
    return 1
}

if has_java; then
    exit 0
fi
if install_with_apt && has_java; then
    say "installed"
    exit 0
fi
say "no Java 17 or newer found. Everything but Spark works without it."
say "For Spark install a Java runtime, on Debian or Ubuntu: sudo apt-get install openjdk-17-jre-headless"
if [[ -n ${JAVA_HOME-} ]]; then
    say "JAVA_HOME is $JAVA_HOME: it must name a Java 17 or newer, or be unset."
fi
