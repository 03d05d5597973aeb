#!/bin/sh
# render.sh FILE: a page of a text whose first line is the title.
cat head.html
printf '<h1>%s</h1>\n' "$(head -n 1 "$1")"
! grep -q '^FIXME' "$1" || { echo "$1 is not ready" >&2; exit 1; }
tail -n +2 "$1" | sed 's/.*/<p>&<\/p>/'
