// Package allreduce joins the ranks of one attempt over TCP, and adds up their numbers in an order that does not depend on
// how many ranks there are.
//
// Rank 0 listens, the others dial it: a star, because the vectors are small and the order of the sum is one rank's to keep.
// A connection starts with a handshake that names gang, attempt, rank, world and model, so that a stranger, or a rank of a
// stale attempt, never takes part. Then each rank sends its blocks, and rank 0 answers. Every wait has a deadline. When a rank
// is lost, rank 0 tells the others why and closes all connections, so that no rank waits for a partial gang.
package allreduce
