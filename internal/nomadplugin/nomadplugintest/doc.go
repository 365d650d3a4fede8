// Package nomadplugintest is for the tests of Nomad plugins: it stands in the
// place of the Nomad agent that starts a plugin, reads its schemas and calls it.
package nomadplugintest
