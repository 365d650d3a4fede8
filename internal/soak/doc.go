// Package soak tries properties for as long as a run of the tests is to take:
// until their plays have had so many events, or with -soak for a time. It says
// how many there were, and from which seed.
package soak
