git init -q . && git config user.name Ann && git config user.email ann@example.com &&
	git add notes.txt && git commit -q -m 'notes: begin'
