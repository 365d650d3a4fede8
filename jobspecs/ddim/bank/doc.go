// Package bank is the reference runner's model: a bank of short clips, rendered procedurally, and the prior that a prompt
// puts on them.
//
// A clip is one choice of shape, colour, motion, scene, light, tint and variant. Parse turns a prompt into a Query, Query.Select
// picks the clips that carry the prior's mass, and Renderer draws frames of them in linear RGB. Everything is a function of
// its arguments: a clip's frame has the same bits on every rank.
package bank

// Digest names this version of the bank: what "model digest" means for the reference runner. Change it with anything
// that changes a picture or a prior.
const Digest = "ddim-bank-1"
