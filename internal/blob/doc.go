// Package blob is the store of what gangd makes and keeps for good: artifacts,
// named after their content, and manifests, each published at most once.
//
// It stands on gocloud.dev/blob. Objects never change and are never written
// twice: a second writer of the same content succeeds without effect, one of
// other content is refused and is told what is there. That holds between
// processes, for a directory as for an object store.
package blob
