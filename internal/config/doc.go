// Package config reads HCL: the configuration of an agent, the gangs that users
// submit, and scenarios. What a gang asks of a cluster has one schema, wherever
// it stands; submitted gangs may also come as JSON. So the same fault is told
// in the same words.
//
// What cannot be read is an *UnreadableError, which shows file, line and the
// offending text. Nothing is passed over in silence: an attribute or block
// that is not known is a fault.
//
// Files hold plain values only. Variables, functions, operators and template
// sequences are refused, which also keeps the cost of reading a file from a
// stranger linear in its size.
package config
