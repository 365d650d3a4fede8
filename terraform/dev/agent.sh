#!/usr/bin/env bash
# One agent of a dev cluster, as a daemon.
#
#   agent.sh create DATA_DIR NAME KIND BIN_DIR ADDRESS   records how to start NAME, with the configuration
#                                                        $AGENT_CONFIG, and starts it
#   agent.sh start  DATA_DIR NAME                        starts it and waits until it answers
#   agent.sh stop   DATA_DIR NAME                        ends it; a Nomad client's tasks live on
#   agent.sh kill   DATA_DIR NAME                        kill -9, of the agent alone
#   agent.sh pid    DATA_DIR NAME                        prints its process ID; fails if it does not run
#   agent.sh status DATA_DIR                             one line an agent; fails unless all of them run
#
# KIND is consul, nomad or gangd, which is also the binary's name in BIN_DIR; ADDRESS is its HTTP address.
# In DATA_DIR: NAME/ (configuration, state, pid), logs/NAME.log.
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=process.sh
source "$(dirname "${BASH_SOURCE[0]}")/process.sh"

start_limit_s=30
stop_limit_s=5

die() {
	echo "agent.sh: $*" >&2
	exit 1
}

# Sets kind, bin_dir and address as they were defined.
recall() {
	local -a defined
	[[ -f $dir/launch ]] || die "$name is not defined in $data"
	mapfile -t defined <"$dir/launch"
	kind=${defined[0]} bin_dir=${defined[1]} address=${defined[2]}
}

# Sets pid and started to those of the last start; empty before the first.
recall_process() {
	pid='' started=''
	[[ ! -f $dir/pid ]] || read -r pid started <"$dir/pid" || true
}

create() {
	local kind=$1 bin_dir=$2 address=$3
	mkdir -p "$dir" "$data/logs"
	# Nomad would let nobody else pass, and a task may be of another user.
	mkdir -p -m 711 "$dir/data"
	printf '%s' "${AGENT_CONFIG:?}" >"$dir/agent.hcl"
	printf '%s\n' "$kind" "$bin_dir" "$address" >"$dir/launch"
	start
}

# Whether the agent does its work: for Nomad, that it is up; its cluster may still be electing.
ready() {
	case $kind in
	consul) [[ $(http_get "$address" /v1/status/leader) == *:* ]] ;;
	nomad) http_get "$address" /v1/agent/self >/dev/null ;;
	gangd) http_get "$address" /readyz >/dev/null ;;
	*) die "$name: no such kind of agent: $kind" ;;
	esac
}

# Starts the daemon, in a session of its own and with no descriptor of ours, and records it. Sets began to where in its
# log that is.
launch() {
	local -a command
	local open
	case $kind in
	consul) command=(consul agent "-config-file=$dir/agent.hcl") ;;
	nomad) command=(nomad agent "-config=$dir/agent.hcl") ;;
	gangd) command=(gangd agent -config "$dir/agent.hcl" -record "$dir/record.jsonl" -record-mib 16) ;;
	esac
	began=$(stat -c %s "$log" 2>/dev/null || echo 0)
	echo "--- $(date -u +%FT%TZ) starting ${command[*]}" >>"$log"
	(
		# A shell starts what it puts into the background with these ignored, which would reach every task.
		trap - INT QUIT
		for open in /proc/self/fd/*; do
			open=${open##*/}
			((open <= 2)) || exec {open}>&-
		done
		cd "$dir"
		PATH=$bin_dir:$PATH exec setsid "$bin_dir/${command[0]}" "${command[@]:1}" </dev/null >>"$log" 2>&1
	) &
	pid=$!
	started=$(start_time "$pid")
	echo "$pid $started" >"$dir/pid"
}

# What it said since it was started, and not before.
failed() {
	echo "agent.sh: $name $*; its log is $log and ends with:" >&2
	tail -c "+$((began + 1))" "$log" | tail -n 15 >&2
	exit 1
}

start() {
	local until
	recall
	recall_process
	! alive "$pid" "$started" || return 0
	[[ -x $bin_dir/$kind ]] || die "$name: $bin_dir/$kind is missing: run make tools build"
	! listening "$address" ||
		die "$name: something listens on $address already, another dev cluster perhaps: end it, or choose another base_port"
	launch
	until=$((SECONDS + start_limit_s))
	until ready; do
		alive "$pid" "$started" || failed "ended while it was starting"
		if ((SECONDS > until)); then
			end "$stop_limit_s" "$pid" "$started"
			failed "did not answer on $address within $start_limit_s s"
		fi
		sleep 0.1
	done
}

stop() {
	recall_process
	end "$stop_limit_s" "$pid" "$started" || die "$name: process $pid does not end"
}

stop_at_once() {
	recall_process
	alive "$pid" "$started" || return 0
	kill -KILL "$pid"
	gone "$stop_limit_s" "$pid" "$started" || die "$name: process $pid does not end"
}

status() {
	local all=0 state
	for dir in "$data"/*/; do
		dir=${dir%/}
		[[ -f $dir/launch ]] || continue
		name=${dir##*/}
		recall
		recall_process
		state=dead
		if alive "$pid" "$started"; then state=running; else all=1; fi
		printf '%-12s %-8s %-8s http://%s\n' "$name" "$state" "${pid:--}" "$address"
	done
	return "$all"
}

(($# >= 2)) || die "usage: agent.sh create|start|stop|kill|pid|status DATA_DIR [NAME ...]"
verb=$1 name=${3:-}
data=$(realpath -m "$2") # an agent starts in its own directory, and is found by absolute paths
dir=$data/$name log=$data/logs/$name.log
[[ $verb == status || -n $name ]] || die "which agent? usage: agent.sh $verb DATA_DIR NAME"
case $verb in
create) create "${@:4}" ;;
start) start ;;
stop) stop ;;
kill) stop_at_once ;;
pid)
	recall_process
	alive "$pid" "$started" || die "$name does not run"
	echo "$pid"
	;;
status) status ;;
*) die "no such verb: $verb" ;;
esac
