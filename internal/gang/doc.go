// Package gang holds the values that the rest of gangd speaks of: the gang and
// its specification, members and placements, lanes, their states with the
// legal transitions, the fence, and the records in which all of it is kept.
//
// It is pure: no clock, no I/O. Whoever needs a time or an identifier passes
// one in.
package gang
