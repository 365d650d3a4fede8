// Package member is the config block of a template's task, which says how one
// member of a gang is run. Its rules are written once, here: gangd refuses a
// template that breaks them when a gang is submitted, and the driver plugin
// when it starts a lane. It does no I/O: whether a command is there, only its
// node can tell.
package member
