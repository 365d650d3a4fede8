// Package runner is the runner protocol: how a keeper and the program that generates (the runner) talk.
//
// The keeper listens on one Unix socket a rank and names it in GANGD_RUNNER_SOCKET; the runner connects. Each side
// then writes JSON objects, one a line, at most MaxLine bytes long, each with a "type":
//
//	keeper to runner    run, checkpoint, cancel, drain
//	runner to keeper    hello, ready, stage, step, checkpoint, result, error
//
// A runner lives as long as its lane: it says hello, loads its weights, says ready, and then carries out one run after
// another. Every rank ends every run with exactly one result or error. Each order names its gang and attempt; an order
// for another attempt than the current or the announced one is stale and is ignored. Fields that a side does not know
// are ignored, so that a newer peer can add some; a type that it does not know is an error.
//
// Keepers use Listen, Listener.Accept and Conn. Programs in Go implement Program and call Serve.
package runner
