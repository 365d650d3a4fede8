// Package report says how the gangs of a play fared, all together and by tier and
// size, so that plays of one scenario under different policies can be held
// against each other.
package report
