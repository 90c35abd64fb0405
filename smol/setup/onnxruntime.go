package main

import (
	"context"
	"path/filepath"
)

// onnxruntimeStep puts ONNX Runtime's library in place.
func onnxruntimeStep(p platform) step {
	return step{
		name:    "onnxruntime",
		recipe:  onnxruntimeVersion + " " + p.library.sha256,
		outputs: []string{p.library.name},
		links:   map[string]string{p.link: p.library.name},
		sources: []source{{
			// The project's own release is left out: nobody has published a
			// hash of it.
			name: "pip, onnxruntime " + onnxruntimeVersion,
			make: func(ctx context.Context, dir string, out *reporter) error {
				w := wheel{project: "onnxruntime==" + onnxruntimeVersion, platform: p.wheelTag, fetched: p.wheel}
				file, err := fetchWheel(ctx, "onnxruntime", w, filepath.Dir(dir), out)
				if err != nil {
					return err
				}
				return unzip(ctx, file, p.library, filepath.Join(dir, p.library.name))
			},
		}},
	}
}
