# awk -f report.awk PRICES ORDERS: what each customer owes.
NR == FNR {
	price[$1] = $2
	next
}
!($2 in price) {
	print $1 ": no price for " $2
	next
}
{ owed[$1] += $3 * price[$2] }
END {
	for (who in owed)
		printf "%s: %.2f\n", who, owed[who] | "sort"
}
