package main

import "fmt"

// platform is what differs between the systems that the engine runs on.
type platform struct {
	name     string // GOOS/GOARCH
	untested bool
	wheelTag string // pip's name of the platform
	wheel    fetched
	library  fetched // ONNX Runtime's library inside the wheel; its name is a base name
	link     string  // the name without a version that points to library
}

// fetched is a file that comes from elsewhere, with the hash that it must
// have.
type fetched struct {
	name   string
	bytes  int64
	sha256 string
}

// onnxruntimeVersion is the release that the Go binding is made for.
const onnxruntimeVersion = "1.24.1"

// The hashes are of the wheels as the registry delivered them and of the
// libraries in them.
var platforms = []platform{
	{
		name:     "linux/amd64",
		wheelTag: "manylinux_2_28_x86_64",
		wheel:    fetched{bytes: 17098191, sha256: "34b6119526eda12613f0d0498e2ae59563c247c370c9cef74c2fc93133dde157"},
		library: fetched{"libonnxruntime.so." + onnxruntimeVersion, 22052768,
			"94ac52f650e195b784587e1cb7d25b4bf074048b50fa9a7127795b2ed34db22e"},
		link: "libonnxruntime.so",
	},
	{
		name:     "linux/arm64",
		untested: true,
		wheelTag: "manylinux_2_28_aarch64",
		wheel:    fetched{bytes: 15016224, sha256: "780add442ce2d4175fafb6f3102cdc94243acffa3ab16eacc03dd627cc7b1b54"},
		library: fetched{"libonnxruntime.so." + onnxruntimeVersion, 18559840,
			"31d6df98d3a2942ce10472109f988037f330dad6cb1c19e214fd2b1327315ee0"},
		link: "libonnxruntime.so",
	},
	{
		name:     "darwin/arm64",
		untested: true,
		wheelTag: "macosx_14_0_arm64",
		wheel:    fetched{bytes: 17211043, sha256: "7307aab9e2e879c0171f37e0eb2808a5b4aec7ba899bb17c5f0cedfc301a8ac2"},
		library: fetched{"libonnxruntime." + onnxruntimeVersion + ".dylib", 27651672,
			"644ea9751a5e7e56dff293d2a7c3d78f18f8b404e85bade791c0d40a3b950553"},
		link: "libonnxruntime.dylib",
	},
}

// platformOf errs on a system that nothing here has a library for.
func platformOf(goos, goarch string) (platform, error) {
	for _, p := range platforms {
		if p.name == goos+"/"+goarch {
			return p, nil
		}
	}
	return platform{}, fmt.Errorf("%s/%s is not supported; linux/amd64 is, and linux/arm64 and darwin/arm64 untested", goos, goarch)
}
