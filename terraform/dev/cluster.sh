#!/usr/bin/env bash
# What concerns a dev cluster as a whole, or all that one Nomad client leaves on the machine.
#
#   cluster.sh prepare    DATA_DIR BIN_DIR BLOB_DIR PLUGINS      makes the directories; PLUGINS: names to copy, or ""
#   cluster.sh elected    DATA_DIR ADDRESS                       waits until the Nomad servers have a leader
#   cluster.sh nodes      DATA_DIR BIN_DIR ADDRESS NODES GPUS    waits until NODES are ready, each with its GPUs
#   cluster.sh stop-jobs  BIN_DIR ADDRESS                        stops and purges all jobs, if a server answers
#   cluster.sh sweep      DATA_DIR NAME                          ends what client NAME left running; unmounts; cgroups
#   cluster.sh remove     DATA_DIR KEEP                          sweeps all; removes DATA_DIR unless KEEP is true
set -euo pipefail

# shellcheck source-path=SCRIPTDIR source=process.sh
source "$(dirname "${BASH_SOURCE[0]}")/process.sh"

wait_limit_s=30
jobs_limit_s=4

die() {
	echo "cluster.sh: $*" >&2
	exit 1
}

# Only directories with this file in them are ever removed.
mark=.gangd-dev

prepare() {
	local data=$1 bin_dir=$2 blob_dir=$3 plugins=$4 plugin
	if [[ -d $data && ! -e $data/$mark && -n $(ls -A "$data") ]]; then
		die "$data holds something else than a dev cluster: choose another data_dir"
	fi
	mkdir -p "$data/logs" "$data/plugins" "$blob_dir"
	touch "$data/$mark"
	printf '%s' "${ENVIRONMENT:?}" >"$data/env"
	# Nomad runs every executable of its plugin_dir to ask for its name; so the plugins get a directory to themselves.
	for plugin in $plugins; do
		[[ -x $bin_dir/$plugin ]] || die "$bin_dir/$plugin is missing: run make build"
		install -m 755 "$bin_dir/$plugin" "$data/plugins/$plugin"
	done
}

elected() {
	local data=$1 address=$2 until=$((SECONDS + wait_limit_s))
	until [[ $(http_get "$address" /v1/status/leader) == *:* ]]; do
		((SECONDS <= until)) || die "the Nomad servers have no leader after $wait_limit_s s; their logs are $data/logs/server-*.log"
		sleep 0.1
	done
}

# Prints what keeps node ID from being ready; nothing when it is. Its GPUs must be there, healthy, with a healthy driver.
lacking() {
	local id=$1 gpus=$2 status driver healthy
	read -r status driver healthy < <("$nomad" node status -t "{{.Status}} {{with .Drivers.gang}}{{.Healthy}}{{else}}absent{{end}} \
{{range .NodeResources.Devices}}{{if eq .Vendor \"gangd\"}}{{range .Instances}}{{if .Healthy}}x{{end}}{{end}}{{end}}{{end}}" "$id" 2>/dev/null) || true
	if [[ ${status:-} != ready ]]; then
		echo "it is ${status:-unknown}"
	elif ((gpus > 0)) && [[ $driver != true ]]; then
		echo "its driver gang is $([[ $driver == absent ]] && echo absent || echo unhealthy)"
	elif ((${#healthy} < gpus)); then
		echo "${#healthy} of its $gpus GPUs are healthy"
	fi
}

nodes() {
	local data=$1 bin_dir=$2 count=$4 gpus=$5 until=$((SECONDS + wait_limit_s)) i name id why
	nomad=$bin_dir/nomad
	export NOMAD_ADDR=http://$3
	for ((i = 0; i < count; i++)); do
		name=client-$i
		while true; do
			id=$("$nomad" node status -t "{{range .}}{{if and (eq .Name \"$name\") (ne .Status \"down\")}}{{.ID}}{{end}}{{end}}" 2>/dev/null) || id=''
			why=$([[ -n $id ]] && lacking "$id" "$gpus" || echo "it has not registered")
			[[ -n $why ]] || break
			((SECONDS <= until)) || die "$name is not ready after $wait_limit_s s: $why; its log is $data/logs/$name.log and ends with:
$(tail -n 15 "$data/logs/$name.log")"
			sleep 0.2
		done
	done
}

stop_jobs() {
	local nomad=$1/nomad address=$2 until allocations
	export NOMAD_ADDR=http://$address
	[[ $(http_get "$address" /v1/status/leader) == *:* ]] || return 0
	"$nomad" job status -namespace '*' 2>/dev/null | awk 'NR > 1 && NF > 4 { print "-namespace=" $2, $1 }' |
		xargs -r -n 2 -P 4 "$nomad" job stop -purge -detach -yes >/dev/null || true
	until=$((SECONDS + jobs_limit_s))
	while allocations=$(http_get "$address" '/v1/allocations?namespace=*') &&
		[[ $allocations == *'"ClientStatus":"running"'* || $allocations == *'"ClientStatus":"pending"'* ]] && ((SECONDS < until)); do
		sleep 0.1
	done
}

# The value of $2 in the record of a keeper $1, which is flat but for its control groups.
recorded() {
	tr -d ' \t\n' <"$1" | sed -nE "s/.*\"$2\":\"?([^\",}]+).*/\1/p"
}

# The keepers of the client in directory $1, as lines "PID START".
keepers() {
	local record
	for record in "$1"/state/*/keeper.json; do
		[[ ! -f $record ]] || echo "$(recorded "$record" pid) $(recorded "$record" started)"
	done
}

# The processes that work in directory $1 or below and have no terminal, as lines "PID START": agents and plugins
# start there, and so does what Nomad runs for a task. A user's shell there has a terminal.
strays() {
	local process cwd pid
	while read -r process cwd; do
		pid=${process##*/}
		[[ $cwd/ == "$1"/* && $pid != "$$" && $(terminal "$pid") == 0 ]] || continue
		echo "$pid $(start_time "$pid")"
	done < <(find /proc/[0-9]*/cwd -prune -printf '%h %l\n' 2>/dev/null)
}

# Ends the processes read from standard input, together: lines "PID START".
end_all() {
	local pid started
	while read -r pid started; do
		end 2 "$pid" "$started" &
	done
	wait
}

# The mount points below directory $1, deepest first.
mounts() {
	local point
	while read -r _ _ _ _ point _; do
		printf -v point '%b' "${point//\\/\\0}"
		[[ $point != "$1"/* ]] || echo "$point"
	done </proc/self/mountinfo | sort -r
}

unmount() {
	local point
	while read -r point; do
		umount "$point" 2>/dev/null || umount -l "$point"
	done < <(mounts "$1")
}

# Removes the control groups of the client in directory $1: those of Nomad's allocations, in each hierarchy of cgroup v1
# or in the one of v2, and those that its keepers recorded. They are empty by now; one that is not stays.
remove_cgroups() {
	local parent top record part
	parent=$(sed -nE 's/^ *cgroup_parent *= *"(.+)"$/\1/p' "$1/agent.hcl" 2>/dev/null) || return 0
	[[ -n $parent ]] || return 0
	for top in /sys/fs/cgroup /sys/fs/cgroup/*; do
		[[ ! -d $top/$parent ]] || find "$top/$parent" -depth -type d -exec rmdir {} + 2>/dev/null || true
	done
	for record in "$1"/state/*/keeper.json; do
		[[ -f $record ]] || continue
		for part in v2 keeper base v1 memory; do
			top=$(recorded "$record" "$part")
			[[ $top != /sys/fs/cgroup/?* ]] || rmdir "$top" 2>/dev/null || true
		done
	done
}

sweep() {
	local dir=$1/$2
	[[ -d $dir ]] || return 0
	dir=$(realpath "$dir")
	keepers "$dir" | end_all
	strays "$dir" | end_all
	unmount "$dir"
	remove_cgroups "$dir"
}

remove() {
	local data=$1 keep=$2 dir left
	[[ -e $data/$mark ]] || return 0
	data=$(realpath "$data")
	for dir in "$data"/*/; do
		keepers "${dir%/}"
	done | end_all
	strays "$data" | end_all
	unmount "$data"
	for dir in "$data"/*/; do
		remove_cgroups "${dir%/}"
	done
	left=$(strays "$data")
	[[ -z $left ]] || die "these processes (ID, start time) in $data do not end: $left"
	left=$(mounts "$data")
	[[ -z $left ]] || die "these mounts do not go away: $left"
	[[ $keep == true ]] || rm -rf "$data"
}

verb=${1:-}
case $verb in
prepare | elected | nodes | sweep | remove) "$verb" "${@:2}" ;;
stop-jobs) stop_jobs "${@:2}" ;;
*) die "usage: see the head of cluster.sh; no such verb: ${verb:-(none)}" ;;
esac
