// Package config reads HCL: the configuration of an agent, and the gangs that
// users submit. Gangs may also come as JSON; both go through one schema, so
// that the same fault is told in the same words.
//
// What cannot be read is an *UnreadableError, which shows file, line and the
// offending text. Nothing is passed over in silence: an attribute or block
// that this version does not act on is a fault.
//
// Files hold plain values only. Variables, functions, operators and template
// sequences are refused, which also keeps the cost of reading a file from a
// stranger linear in its size.
package config
