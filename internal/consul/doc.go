// Package consul keeps gangd's durable state and says who leads.
//
// Everything lies below one prefix of the key-value store. An agent leads
// while its session holds the key `leader`; the session hangs on a check that
// the agent's own loop refreshes, so that a dead, stopped or stuck leader
// loses the lock in about two seconds. Every write goes through a Term, in a
// transaction that first checks the session and the cluster's epoch: what a
// deposed leader writes is refused.
//
//	leader          the lock; its value is the Identity of the last holder
//	epoch           raised by hand after a restore; a term is of one epoch
//	log/head        {n, fence} of the newest transaction
//	log/<n mod 4096> {n, fence, keys}: what transaction n changed
package consul
