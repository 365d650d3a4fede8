// Package record keeps what an engine was told, and what it decided, in files
// from which the same decisions can be made again.
//
// A file is JSON, one object a line. The first, its Head, has the rules and a
// snapshot of the engine, so that each file stands alone; each other one is a
// Step: an event, its time, and the decisions. Times are RFC 3339 with
// nanoseconds, durations are in nanoseconds. What users gave their runners, such
// as prompts, is not in it.
//
//	{"gangd_record":1,"version":"0.1.0","rules":{..},"snapshot":{..}}
//	{"n":1,"at":"2026-12-01T14:20:27.5Z","event":{"submit":{"gang":{..}}},"decisions":[{"start":{..}}]}
package record
