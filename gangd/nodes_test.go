package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/gangd/gangd/internal/cluster"
)

func TestNodesAreListedByPlace(t *testing.T) {
	node := func(name string, domains ...string) cluster.NodeStatus {
		return cluster.NodeStatus{Name: name, Domains: domains}
	}
	nodes := []cluster.NodeStatus{
		node("gpu-10", "s0", "l1"), node("gpu-9", "s0", "l1"), node("gpu-007", "s0", "l1"), node("gpu", "s0", "l1"),
		node("gpu-1", "s0", "l10"), node("gpu-2", "s0", "l2"), node("a", "s1", "l0"),
	}
	slices.SortFunc(nodes, byPlace)
	var got []string
	for _, n := range nodes {
		got = append(got, n.Name)
	}
	if want := "gpu gpu-007 gpu-9 gpu-10 gpu-2 gpu-1 a"; strings.Join(got, " ") != want {
		t.Errorf("got %v, want %s", got, want)
	}
}
