module example.com/mymodule

go 1.26.0

require servebench v0.0.0

require (
	github.com/tidwall/gjson v1.20.3 // indirect
	github.com/tidwall/match v1.1.1 // indirect
	github.com/tidwall/pretty v1.3.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
)

replace servebench => ../../../..
