// Package picture draws a play: one page of HTML with pictures that a person
// understands at a glance, and that needs nothing else to be seen. Its size is
// bounded, however long the play was and however large the cluster.
package picture
