#!/usr/bin/env bash
# The four tools of compute-sanitizer over tests/gpu/corpus.py, side by side, and one table of what they said.
#
#     tests/gpu/sanitize.sh [FOLDER]      logs go to FOLDER (default: a new one under /tmp)
#
# Exit status 0: every tool found the defect that is planted for it, found nothing else, and every result agreed with the
# reference. PYTHON, SANITIZER and SECONDS_PER_TOOL may be set.
set -u
cd "$(dirname "$0")/../.." || exit 2
PYTHON=${PYTHON:-python3}
SECONDS_PER_TOOL=${SECONDS_PER_TOOL:-240}
folder=${1:-$(mktemp -d /tmp/fuser-sanitize.XXXXXX)}
mkdir -p "$folder"

sanitizer=${SANITIZER:-$(command -v compute-sanitizer || true)}
if [ -z "$sanitizer" ]; then
    for candidate in /usr/local/cuda/bin/compute-sanitizer /usr/local/cuda*/bin/compute-sanitizer \
        /usr/local/cuda*/compute-sanitizer/compute-sanitizer /opt/nvidia/*/compute-sanitizer /opt/*/bin/compute-sanitizer \
        /opt/nvidia/compute-sanitizer*/compute-sanitizer /usr/lib/nvidia-cuda-toolkit/compute-sanitizer/compute-sanitizer; do
        if [ -x "$candidate" ]; then
            sanitizer=$candidate
            break
        fi
    done
fi
if [ -z "$sanitizer" ]; then
    sanitizer=$(find /opt /usr/local -name compute-sanitizer -type f -perm -u+x 2>/dev/null | head -n 1)
fi
if [ -z "$sanitizer" ]; then
    echo "compute-sanitizer is not in PATH, /usr/local or /opt; set SANITIZER=/path/to/compute-sanitizer" >&2
    exit 2
fi
echo "$sanitizer"
"$sanitizer" --version | head -n 4

# All machine code once, so that four processes need not each compile it.
export PYTHONPATH=.${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
unset FUSER_DEVICE FUSER_FAULT FUSER_DUMP
if ! timeout 300 "$PYTHON" tests/gpu/corpus.py --build "$folder/binaries" >"$folder/build.log" 2>&1; then
    cat "$folder/build.log" >&2
    exit 2
fi
cat "$folder/build.log"

options_of() {
    case $1 in
        # A context that a planted write stopped must not turn into further reports about calls that fail because of it.
        memcheck) echo "--report-api-errors no --destroy-on-device-error context" ;;
        racecheck) echo "--racecheck-report all" ;;
        *) echo "" ;;
    esac
}

for tool in memcheck racecheck synccheck initcheck; do
    (
        # shellcheck disable=SC2046  # the options are words
        timeout -k 10 "$SECONDS_PER_TOOL" "$sanitizer" --tool "$tool" $(options_of "$tool") --print-limit 2000 \
            "$PYTHON" tests/gpu/corpus.py --planted --binaries "$folder/binaries" >"$folder/$tool.log" 2>&1
        echo $? >"$folder/$tool.status"
    ) &
done
wait
"$PYTHON" tests/gpu/sanitizer_report.py "$folder"
status=$?
echo "logs: $folder"
exit $status
