# shellcheck shell=bash
# Processes and their ends, for agent.sh and cluster.sh. A process is known by its ID and the time at which it
# started, never by its name: an ID alone may belong to another process by the time it is used.

# start_time PID: when PID started, in clock ticks since boot; nothing once it is gone, or a zombie with no thread left:
# of one that was killed the first thread may be a zombie while others still hold its files, and its ports.
start_time() {
	local stat
	{ read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 0
	# The name, in parentheses, may hold anything; the state (field 3) follows the last one. Threads are field 20.
	local -a field
	read -ra field <<<"${stat##*) }"
	[[ ${field[0]} == Z && ${field[17]} -le 1 ]] || echo "${field[19]}"
}

# terminal PID: the device number of its controlling terminal; 0 without one.
terminal() {
	local stat
	{ read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 0
	local -a field
	read -ra field <<<"${stat##*) }"
	echo "${field[4]}"
}

# alive PID START: whether the process with this ID that started at START lives.
alive() {
	[[ -n ${1:-} && -n ${2:-} && $(start_time "$1") == "$2" ]]
}

# gone SECONDS PID START: waits until the process is gone; fails after SECONDS.
gone() {
	local until=$((SECONDS + $1))
	while alive "$2" "$3"; do
		((SECONDS <= until)) || return 1
		sleep 0.05
	done
}

# end SECONDS PID START: asks the process to end, and after SECONDS no longer asks.
end() {
	alive "$2" "$3" || return 0
	kill -TERM "$2" 2>/dev/null || true
	gone "$1" "$2" "$3" && return
	! alive "$2" "$3" || kill -KILL "$2" 2>/dev/null || true
	gone 5 "$2" "$3"
}

# http_get HOST:PORT PATH: the body of the answer, if its status is 200. Needs nothing but bash.
http_get() (
	exec 2>/dev/null {socket}<>"/dev/tcp/${1%:*}/${1##*:}" || exit 1
	printf 'GET %s HTTP/1.0\r\nHost: %s\r\nAccept: */*\r\n\r\n' "$2" "$1" >&"$socket"
	answer=$(timeout 2 cat <&"$socket" | tr -d '\0')
	[[ ${answer%%$'\r\n'*} == HTTP/*" 200 "* ]] || exit 1
	printf '%s' "${answer#*$'\r\n\r\n'}"
)

# listening HOST:PORT: whether something accepts connections there.
listening() (
	exec 2>/dev/null {socket}<>"/dev/tcp/${1%:*}/${1##*:}"
)
