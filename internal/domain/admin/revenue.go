package admin

import (
	"context"
)

// counted is the condition for purchases that count: the store has not refunded all of them, support did not grant them
// by hand, and they were not free tests. sold is the number of credits of such a purchase that count.
const (
	counted = `reversed_at IS NULL AND by_support = 0 AND test = 0`
	sold    = `(credits - refunded)`
)

// Revenue sums up all purchases that their store has not refunded, including those of deleted accounts.
type Revenue struct {
	// PayingUsers counts buyers who still have an account: deleting an account removes its id from its purchases.
	PayingUsers   int64 `json:"payingUsers"`
	PurchaseCount int64 `json:"purchaseCount"`
	CreditsSold   int64 `json:"creditsSold"`
	// The same for the last 30 times 24 hours.
	PurchaseCount30d       int64 `json:"purchaseCount30d"`
	CreditsSold30d         int64 `json:"creditsSold30d"`
	PlatformAPurchaseCount int64 `json:"platformAPurchaseCount"`
	PlatformBPurchaseCount int64 `json:"platformBPurchaseCount"`
	PlatformACredits       int64 `json:"platformACredits"`
	PlatformBCredits       int64 `json:"platformBCredits"`
	// AdminGranted is the number of credits that admins granted themselves. They are neither purchases nor part of the
	// numbers above. Grants of deleted accounts are not counted.
	AdminGranted int64 `json:"adminGrantedCredits"`
}

// Revenue sums up all purchases.
func (r *Reports) Revenue(ctx context.Context) (Revenue, error) {
	return single[Revenue](ctx, r.db, `WITH sold AS (
			SELECT platform, `+sold+` AS credits, COUNT(*) AS n FROM purchases WHERE `+counted+` GROUP BY platform, `+sold+`),
		recent AS (
			SELECT COUNT(*) AS n, `+sum(sold)+` AS credits FROM purchases
			WHERE `+counted+` AND created_at >= (SELECT now_ms() - $1))
		SELECT (`+buyersSQL+`) AS paying_users, `+sum("n")+` AS purchase_count, `+sum("n * credits")+` AS credits_sold,
			(SELECT n FROM recent) AS purchase_count30d, (SELECT credits FROM recent) AS credits_sold30d,
			`+sum("CASE platform WHEN 'platform_a' THEN n END")+` AS platform_a_purchase_count,
			`+sum("CASE platform WHEN 'platform_b' THEN n END")+` AS platform_b_purchase_count,
			`+sum("CASE platform WHEN 'platform_a' THEN n * credits END")+` AS platform_a_credits,
			`+sum("CASE platform WHEN 'platform_b' THEN n * credits END")+` AS platform_b_credits,
			(SELECT `+sum("amount")+` FROM credit_ledger WHERE kind = 'admin') AS admin_granted_credits FROM sold`, 30*dayMs)
}

// buyersSQL counts buyers in the order of an index. With a plain COUNT(DISTINCT), PostgreSQL sorts or hashes all
// purchases, which takes several times as long.
const buyersSQL = `SELECT COUNT(*) FROM (SELECT DISTINCT buyer_id FROM (
	SELECT buyer_id FROM purchases WHERE ` + counted + ` AND buyer_id IS NOT NULL ORDER BY buyer_id) AS ordered) AS buyers`

// sum returns SQL for the sum of a nullable column, 0 without rows.
func sum(column string) string { return `CAST(COALESCE(SUM(` + column + `), 0) AS BIGINT)` }

// DailyRevenue is the purchases of one day.
type DailyRevenue struct {
	Day              Day   `json:"date"`
	PlatformACredits int64 `json:"platformACredits"`
	PlatformBCredits int64 `json:"platformBCredits"`
	Purchases        int64 `json:"purchaseCount"`
}

// DailyRevenue returns the purchases of every day of the range.
func (r *Reports) DailyRevenue(ctx context.Context, span Range) ([]DailyRevenue, error) {
	return byDay[DailyRevenue](ctx, r.db, span, `SELECT created_at / 86400000 AS date,
			`+sum("CASE platform WHEN 'platform_a' THEN "+sold+" END")+` AS platform_a_credits,
			`+sum("CASE platform WHEN 'platform_b' THEN "+sold+" END")+` AS platform_b_credits, COUNT(*) AS purchase_count
		FROM purchases WHERE created_at >= $1 AND created_at < $2 AND `+counted+`
		GROUP BY created_at / 86400000`)
}
