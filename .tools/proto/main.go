// Command proto regenerates the Go code of every .proto file below internal/,
// next to its source, with protocompile in the place of protoc. File names are
// relative to the repository root, both in imports and in the registry of the
// running program, so that they cannot collide with those of a dependency.
//
// Usage: proto ROOT (see the script generate beside this file)
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/linker"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

// plugins are the code generators, as the module's tool directives pin them.
var plugins = []string{"protoc-gen-go", "protoc-gen-go-grpc"}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: proto ROOT")
		os.Exit(2)
	}
	if err := generate(os.Args[1]); err != nil {
		fmt.Fprintf(os.Stderr, "proto: %v\n", err)
		os.Exit(1)
	}
}

func generate(root string) error {
	sources, err := find(root)
	if err != nil {
		return err
	}
	if len(sources) == 0 {
		return fmt.Errorf("no .proto file below %s", filepath.Join(root, "internal"))
	}
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{root}}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	files, err := compiler.Compile(context.Background(), sources...)
	if err != nil {
		return fmt.Errorf("compile: %w", err)
	}
	request := &pluginpb.CodeGeneratorRequest{
		FileToGenerate: sources,
		Parameter:      proto.String("paths=source_relative"),
		ProtoFile:      withImports(files),
	}
	for _, plugin := range plugins {
		if err := run(plugin, request, root); err != nil {
			return err
		}
	}
	return nil
}

// find lists the sources by their slash-separated names relative to root, sorted.
func find(root string) ([]string, error) {
	var sources []string
	err := filepath.WalkDir(filepath.Join(root, "internal"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".proto" {
			return err
		}
		name, err := filepath.Rel(root, path)
		sources = append(sources, filepath.ToSlash(name))
		return err
	})
	slices.Sort(sources)
	return sources, err
}

// withImports gives the descriptors of files and of all that they import, each
// after its own imports, as the plugin protocol asks.
func withImports(files linker.Files) []*descriptorpb.FileDescriptorProto {
	var ordered []*descriptorpb.FileDescriptorProto
	seen := make(map[string]bool)
	var visit func(protoreflect.FileDescriptor)
	visit = func(file protoreflect.FileDescriptor) {
		if seen[file.Path()] {
			return
		}
		seen[file.Path()] = true
		imports := file.Imports()
		for i := range imports.Len() {
			visit(imports.Get(i).FileDescriptor)
		}
		ordered = append(ordered, protodesc.ToFileDescriptorProto(file))
	}
	for _, file := range files {
		visit(file)
	}
	return ordered
}

// run hands the request to one plugin and writes the files it answers with.
func run(plugin string, request *pluginpb.CodeGeneratorRequest, root string) error {
	input, err := proto.Marshal(request)
	if err != nil {
		return fmt.Errorf("%s: encode request: %w", plugin, err)
	}
	command := exec.Command("go", "tool", plugin)
	command.Stdin, command.Stderr = bytes.NewReader(input), os.Stderr
	output, err := command.Output()
	if err != nil {
		return fmt.Errorf("run %s: %w", plugin, err)
	}
	var response pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(output, &response); err != nil {
		return fmt.Errorf("%s: decode response: %w", plugin, err)
	}
	if response.Error != nil {
		return fmt.Errorf("%s: %w", plugin, errors.New(strings.TrimSpace(*response.Error)))
	}
	for _, file := range response.File {
		path := filepath.Join(root, filepath.FromSlash(file.GetName()))
		if err := os.WriteFile(path, []byte(file.GetContent()), 0o644); err != nil {
			return fmt.Errorf("%s: %w", plugin, err)
		}
		fmt.Println(file.GetName())
	}
	return nil
}
