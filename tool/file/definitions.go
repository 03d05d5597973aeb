package file

import "github.com/skete-dev/skete/tool"

// definitions are the tools in the order in which models see them. The texts
// are short: every request pays for them.
var definitions = []definition{
	{
		name:  "ls",
		about: `Lists what is in a directory; names of directories end in "/". Example: {"path":"/workspace"}`,
		schema: `{"type":"object","additionalProperties":false,"required":["path"],"properties":{
			"path":{"type":"string","description":"Absolute path of the directory"}}}`,
		make: func(b base) tool.Tool { return ls{b} },
	},
	{
		name: "read_file",
		about: `Reads a file: its lines with their numbers, which are not part of it, 100 unless limit says otherwise, and the offset to go on with. ` +
			`Lines of more than 5,000 characters are split (5, 5.1, 5.2). Example: {"file_path":"/workspace/main.go","offset":200,"limit":80}`,
		shows: true,
		schema: `{"type":"object","additionalProperties":false,"required":["file_path"],"properties":{
			"file_path":{"type":"string","description":"Absolute path of the file"},
			"offset":{"type":"integer","minimum":0,"default":0,"description":"How many lines to skip"},
			"limit":{"type":"integer","minimum":1,"maximum":100000,"default":100,"description":"How many lines to show"}}}`,
		make: func(b base) tool.Tool { return read{b} },
	},
	{
		name: "write_file",
		about: `Writes a whole file: creates it, with its directories, or replaces what is in it. To change a part use edit_file. ` +
			`Example: {"file_path":"/workspace/hello.py","content":"print('hello')\n"}`,
		schema: `{"type":"object","additionalProperties":false,"required":["file_path","content"],"properties":{
			"file_path":{"type":"string","description":"Absolute path of the file"},
			"content":{"type":"string","description":"The whole new content"}}}`,
		make: func(b base) tool.Tool { return write{b} },
	},
	{
		name: "edit_file",
		about: `Replaces text in a file that you have read. old_string is literal, with its white space and without line numbers, and has to be there exactly ` +
			`once unless replace_all is set: take enough of the lines around it. Several changes go into edits: they are made in their order, all or none. ` +
			`Example: {"file_path":"/workspace/sum.go","old_string":"return a - b","new_string":"return a + b"}`,
		schema: `{"type":"object","additionalProperties":false,"required":["file_path"],"properties":{
			"file_path":{"type":"string","description":"Absolute path of the file"},
			"old_string":{"type":"string","description":"The text to replace"},
			"new_string":{"type":"string","description":"What to put in its place"},
			"replace_all":{"type":"boolean","default":false,"description":"Replace it everywhere"},
			"edits":{"type":"array","maxItems":50,"description":"In place of old_string and new_string","items":{"type":"object","additionalProperties":false,
				"required":["old_string","new_string"],"properties":{"old_string":{"type":"string"},"new_string":{"type":"string"},"replace_all":{"type":"boolean"}}}}}}`,
		make: func(b base) tool.Tool { return edit{b} },
	},
	{
		name:  "delete",
		about: `Deletes a file, or a directory with all that is in it. Example: {"file_path":"/workspace/old.txt"}`,
		schema: `{"type":"object","additionalProperties":false,"required":["file_path"],"properties":{
			"file_path":{"type":"string","description":"Absolute path of the file or directory"}}}`,
		make: func(b base) tool.Tool { return remove{b} },
	},
	{
		name: "glob",
		about: `Finds files by name. "*.py" finds the name at any depth, "src/**/*.ts" and "/*.md" begin at path; ` +
			`{a,b} stands for alternatives. Names that begin with a dot are found only by a pattern that does too.`,
		schema: `{"type":"object","additionalProperties":false,"required":["pattern"],"properties":{
			"pattern":{"type":"string","description":"The pattern"},
			"path":{"type":"string","description":"Absolute path to search; the working directory unless given"}}}`,
		make: func(b base) tool.Tool { return glob{b} },
	},
	{
		name: "grep",
		about: `Finds text in files, line by line: literal text, or with regexp a regular expression (RE2). At most 1,000 matches. ` +
			`Example: {"pattern":"func \\w+Handler","regexp":true,"glob":"*.go","output_mode":"content"}`,
		schema: `{"type":"object","additionalProperties":false,"required":["pattern"],"properties":{
			"pattern":{"type":"string","minLength":1,"maxLength":4096,"description":"What to find"},
			"regexp":{"type":"boolean","default":false,"description":"The pattern is a regular expression"},
			"path":{"type":"string","description":"Absolute path to search; the working directory unless given"},
			"glob":{"type":"string","description":"Only files that match, such as *.py"},
			"output_mode":{"type":"string","enum":["files_with_matches","content","count"],"default":"files_with_matches","description":"Paths, matching lines with their numbers, or counts"},
			"max_count":{"type":"integer","minimum":1,"description":"At most so many matches"}}}`,
		make: func(b base) tool.Tool { return grep{b} },
	},
	{
		name:   "apply_patch",
		hidden: true,
		about: `Changes files by a patch: adds, deletes, updates and moves them, all of it or nothing. Hunks are found by their lines; give three lines around a change, ` +
			`and @@ with the line of a function or class where they are not unique. Example: ` +
			`{"patch":"*** Begin Patch\n*** Update File: sum.go\n@@ func sum(a, b int) int {\n-\treturn a - b\n+\treturn a + b\n*** Add File: NOTES\n+hello\n*** Delete File: old.go\n*** End Patch"}`,
		schema: `{"type":"object","additionalProperties":false,"required":["patch"],"properties":{
			"patch":{"type":"string","minLength":1,"description":"From *** Begin Patch to *** End Patch"}}}`,
		make: func(b base) tool.Tool { return applyPatch{b} },
	},
	{
		name:   "list_files",
		hidden: true,
		about:  `Lists the files and directories in a directory. Directories end in "/".`,
		schema: `{"type":"object","additionalProperties":false,"properties":{
			"path":{"type":"string","description":"Absolute path of the directory; the working directory unless given"}}}`,
		make: func(b base) tool.Tool { return listFiles{ls{b}} },
	},
}
