-- Adults with type 2 diabetes and no heart failure before: one row each, ten features from the time up to the diagnosis,
-- and whether heart failure followed within twelve months. Plain SQL: it gives the same rows in PostgreSQL, SQLite and others.
--
-- Concepts (standard vocabulary; where your codes are more specific, join concept_ancestor):
--   201826 type 2 diabetes    320128 essential hypertension    432867 hyperlipidemia    46271022 chronic kidney disease
--   316139 heart failure      3004410 HbA1c, %    3004249 systolic pressure, mm Hg    3016723 creatinine, mg/dL
--   3038553 body mass index, kg/m2
WITH entry AS (
  SELECT person_id, MIN(condition_start_date) AS day
  FROM condition_occurrence
  WHERE condition_concept_id = 201826
  GROUP BY person_id
),
cohort AS (
  SELECT e.person_id, e.day, p.gender_concept_id,
         CAST(SUBSTR(CAST(e.day AS VARCHAR(10)), 1, 4) AS INTEGER) - p.year_of_birth AS age,
         CAST(SUBSTR(CAST(e.day AS VARCHAR(10)), 1, 4) AS INTEGER) * 12
           + CAST(SUBSTR(CAST(e.day AS VARCHAR(10)), 6, 2) AS INTEGER) AS entry_month
  FROM entry e JOIN person p ON p.person_id = e.person_id
),
earlier AS (
  SELECT c.person_id,
         COUNT(DISTINCT o.condition_concept_id) AS conditions,
         MAX(CASE WHEN o.condition_concept_id = 316139 THEN 1 ELSE 0 END) AS failed_before,
         MAX(CASE WHEN o.condition_concept_id = 320128 THEN 1 ELSE 0 END) AS hypertension,
         MAX(CASE WHEN o.condition_concept_id = 432867 THEN 1 ELSE 0 END) AS hyperlipidemia,
         MAX(CASE WHEN o.condition_concept_id = 46271022 THEN 1 ELSE 0 END) AS kidney_disease
  FROM cohort c JOIN condition_occurrence o ON o.person_id = c.person_id AND o.condition_start_date < c.day
  GROUP BY c.person_id
),
newest AS (
  SELECT c.person_id, m.measurement_concept_id AS concept, MAX(m.measurement_date) AS day
  FROM cohort c JOIN measurement m ON m.person_id = c.person_id AND m.measurement_date <= c.day
  WHERE m.value_as_number IS NOT NULL
  GROUP BY c.person_id, m.measurement_concept_id
),
measured AS (
  SELECT n.person_id,
         AVG(CASE WHEN n.concept = 3004410 THEN m.value_as_number END) AS hba1c,
         AVG(CASE WHEN n.concept = 3004249 THEN m.value_as_number END) AS systolic,
         AVG(CASE WHEN n.concept = 3016723 THEN m.value_as_number END) AS creatinine,
         AVG(CASE WHEN n.concept = 3038553 THEN m.value_as_number END) AS bmi
  FROM newest n JOIN measurement m
    ON m.person_id = n.person_id AND m.measurement_concept_id = n.concept AND m.measurement_date = n.day
  GROUP BY n.person_id
),
followed AS (
  SELECT DISTINCT c.person_id
  FROM cohort c JOIN condition_occurrence o ON o.person_id = c.person_id AND o.condition_start_date > c.day
  WHERE o.condition_concept_id = 316139
    AND CAST(SUBSTR(CAST(o.condition_start_date AS VARCHAR(10)), 1, 4) AS INTEGER) * 12
      + CAST(SUBSTR(CAST(o.condition_start_date AS VARCHAR(10)), 6, 2) AS INTEGER) <= c.entry_month + 12
)
SELECT c.age,
       CASE c.gender_concept_id WHEN 8507 THEN 'male' WHEN 8532 THEN 'female' END AS sex,
       COALESCE(e.conditions, 0) AS conditions,
       CASE WHEN e.hypertension = 1 THEN 'yes' ELSE 'no' END AS hypertension,
       CASE WHEN e.hyperlipidemia = 1 THEN 'yes' ELSE 'no' END AS hyperlipidemia,
       CASE WHEN e.kidney_disease = 1 THEN 'yes' ELSE 'no' END AS kidney_disease,
       m.hba1c, m.systolic, m.creatinine, m.bmi,
       CASE WHEN f.person_id IS NOT NULL THEN 'yes' ELSE 'no' END AS heart_failure
FROM cohort c
LEFT JOIN earlier e ON e.person_id = c.person_id
LEFT JOIN measured m ON m.person_id = c.person_id
LEFT JOIN followed f ON f.person_id = c.person_id
WHERE c.age >= 18 AND COALESCE(e.failed_before, 0) = 0
