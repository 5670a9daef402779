#!/usr/bin/env bash
# Whether a version takes over pods that run: adopt.sh OLD NEW, two directories of `pumice` and `jobctl`. As root.
# The old one starts pods and is killed, another time it is stopped; the new one has to find the same processes, their logs, a way into
# their containers, and their exit code.
set -euo pipefail
old=$(realpath "$1") new=$(realpath "$2")
up=

fail() {
  echo "adopt.sh: $*" >&2
  tail -n 20 "$place/up.log" >&2
  exit 1
}

start() { # start BINARIES
  : >"$place/up.out"
  "$1/pumice" up --port 0 --data-dir "$place/data" --cpu 2 --memory 2Gi >"$place/up.out" 2>>"$place/up.log" &
  up=$!
  until grep -q https:// "$place/up.out"; do
    kill -0 "$up" 2>/dev/null || fail "$1/pumice up ended"
    sleep 0.1
  done
}

end() { # end SIGNAL
  kill "-$1" "$up" 2>/dev/null || true
  wait "$up" 2>/dev/null || true
  up=
}

clean() {
  [ -z "$up" ] || end TERM
  [ ! -d "$place/data" ] || "$new/pumice" down --now --data-dir "$place/data" >/dev/null 2>&1 || true
  rm -rf "$place"
}

# Processes of the pods, each with the time at which it began, which another one would not have.
processes() {
  local process
  for process in $(pgrep -f "^sh -c echo before; until .* $place/shared/go "); do
    echo "$process $(cut -d ' ' -f 22 "/proc/$process/stat")"
  done | sort
}

within() { # within SECONDS COMMAND...
  local late=$((SECONDS + $1))
  shift
  until "$@"; do
    [ "$SECONDS" -lt "$late" ] || fail "never: $*"
    sleep 0.2
  done
}

kube() { kubectl --kubeconfig "$place/data/kubeconfig" "$@"; }
phase_is() { [ "$(kube get jobs.batch.volcano.sh runs -o jsonpath='{.status.state.phase}')" = "$1" ]; }
uids() { kube get pods -o jsonpath='{range .items[*]}{.metadata.name} {.metadata.uid} {.status.containerStatuses[0].restartCount}{"\n"}{end}'; }

for signal in KILL INT; do
  place=$(mktemp -d /tmp/pumice-adopt.XXXXXX)
  trap clean EXIT
  mkdir "$place/shared"
  start "$old"
  program="echo before; until [ -e $place/shared/go ]; do sleep 0.2; done; echo after; exit 7"
  (cd "$place/shared" && "$old/jobctl" --data-dir "$place/data" submit --name runs --replicas 2 -- sh -c "$program") >/dev/null
  within 60 phase_is Running
  before=$(processes) pods=$(uids)
  [ "$(wc -l <<<"$before")" = 2 ] || fail "there are not two processes: $before"
  end "$signal"
  [ "$(processes)" = "$before" ] || fail "the pods did not outlive the old platform"

  start "$new"
  sleep 2
  [ "$(processes)" = "$before" ] || fail "other processes run now: $(processes), before: $before"
  [ "$(uids)" = "$pods" ] || fail "other pods are there now: $(uids), before: $pods"
  phase_is Running || fail "the job does not run any more"
  [ "$(kube exec runs-main-0 -- echo inside)" = inside ] || fail "nobody gets into a container"
  touch "$place/shared/go"
  within 60 phase_is Failed
  codes=$(kube get pods -o jsonpath='{.items[*].status.containerStatuses[0].state.terminated.exitCode}')
  [ "$codes" = "7 7" ] || fail "the exit codes are $codes and not 7 7"
  logs=$("$new/jobctl" --data-dir "$place/data" logs runs --index 0 2>/dev/null || "$new/jobctl" --data-dir "$place/data" logs runs)
  grep -q before <<<"$logs" && grep -q after <<<"$logs" || fail "the log is not whole: $logs"
  clean
  trap - EXIT
  echo "after SIG$signal: the same processes, pods and logs, exit code 7"
done
